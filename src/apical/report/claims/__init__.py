"""The paper's claims: the rules, what was found, the verdicts."""
