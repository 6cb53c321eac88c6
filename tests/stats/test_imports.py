"""`apical.stats` is numpy and scipy alone."""

import subprocess
import sys


def test_the_statistics_import_neither_torch_nor_the_rest_of_the_laboratory() -> None:
    code = (
        "import sys, apical; apical.stats.mcnemar([True], [False]);"
        "loaded = {name.split('.')[0] for name in sys.modules};"
        "ours = {name for name in sys.modules if name.startswith('apical.')};"
        "strangers = {n for n in ours if n.split('.')[1] not in ('stats', 'errors')};"
        "sys.exit(str(loaded & {'torch', 'pandas', 'matplotlib'} | strangers or ''))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == ""
