"""Training without gradients: a population of networks around the present one, evaluated on a batch as one program.

A generation takes the place of a gradient: the strategy writes the direction in which the network shall move into the
`grad` of its parameters, and the trial's optimiser takes the step. So learning rates, checkpoints and records are those
of every other trial.

`es` (Salimans et al., 2017) estimates the gradient of the loss, smoothed by a normal distribution of deviation sigma,
from pairs of networks in opposite directions, and Adam steps along it. Losses are replaced by their ranks, so that
their scale does not matter. `cma-es` (Hansen, 2016) adapts the covariance matrix and the size of its steps too; a plain
step with the learning rate 1 moves the network to the weighted mean of the better half. It is written here, and not
taken from the package `cma` as in `apical.nn.evolve_`, because a checkpoint holds tensors and nothing pickled.

The random numbers of a generation depend on (seed, epoch, batch) alone: trials with equal seeds are paired, and nothing
of a generator has to be stored. Losses have ties, as with `sign` units; ties share their mean rank.
"""

from copy import deepcopy
from math import exp, log, sqrt

import torch
from torch import Tensor, nn

from apical.data.randomness import number
from apical.errors import CheckpointError, TrainingError
from apical.nn.evolution import population_losses, split
from apical.train import losses
from apical.train.spec import EVOLUTION, TrialSpec

MOST = 4096
"""Parameters of a network that cma-es trains: its matrix has their square."""


def evolution_of(spec: TrialSpec, network: nn.Module) -> "Evolution | None":
    """The strategy that takes the place of gradients in a trial; None where it is trained by gradients."""
    if spec.optimiser not in EVOLUTION:
        return None
    if any(name.endswith(("running_mean", "running_var")) for name, _ in network.named_buffers()):
        raise TrainingError(
            f"{spec.model} has batch norm, whose running statistics a population would share: train it with gradients"
        )
    return Covariance(spec, network) if spec.optimiser == "cma-es" else Evolution(spec, network)


class Evolution:
    """`es`: the gradient of a smoothed loss, estimated from pairs of networks in opposite directions."""

    def __init__(self, spec: TrialSpec, network: nn.Module) -> None:
        self.spec = spec
        self.network = deepcopy(network).train()  # the original is watched while a generation is evaluated
        self.criterion = losses.find(spec.loss).compute
        self.parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self.size = sum(p.numel() for p in self.parameters.values())
        weights = [torch.full((p.numel(),), float(p.dim() > 1)) for p in self.parameters.values()]
        self.penalised = torch.cat(weights)
        """1 for weights, which the L2 penalty is about, 0 for all others."""

    def propose(self, inputs: Tensor, labels: Tensor, *, epoch: int, batch: int) -> None:
        """Evaluate a generation, and write the direction that follows from it into the gradients."""
        mean = torch.cat([p.detach().flatten() for p in self.parameters.values()])
        direction = self._direction(mean, inputs, labels, self._generator(epoch, batch))
        for name, piece in split(direction.to(mean), self.parameters).items():
            self.parameters[name].grad = piece.clone()

    def _direction(self, mean: Tensor, inputs: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.randn(self.spec.population // 2, self.size, generator=generator).to(mean)
        rows = torch.cat([mean + self.spec.sigma * noise, mean - self.spec.sigma * noise])
        better, worse = ranks(self._losses(rows, inputs, labels)).chunk(2)
        return gradient(better, worse, noise, self.spec.sigma)

    def _losses(self, rows: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The loss of each network, with the L2 penalty."""
        values = population_losses(self.network, rows, inputs, labels, self.criterion)
        return values + self.spec.l2 / 2 * (rows.square() @ self.penalised.to(rows)) if self.spec.l2 else values

    def _generator(self, epoch: int, batch: int) -> torch.Generator:
        return torch.Generator().manual_seed(number("evolution", self.spec.seed, epoch, batch) >> 1)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint stores of the strategy, by name."""
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        own = self.tensors()
        if own.keys() != tensors.keys() or any(own[name].shape != t.shape for name, t in tensors.items()):
            raise CheckpointError("the checkpoint belongs to another evolution strategy than the trial: delete it")


def gradient(first: Tensor, second: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """The gradient in (N,), estimated from the losses (n,) at mean + sigma * noise and at mean - sigma * noise.

    Its expectation is the gradient of E[loss(mean + sigma * z)], z standard normal; for a quadratic loss that is its
    own gradient.
    """
    return (first - second) @ noise / (2 * sigma * len(noise))


def ranks(values: Tensor) -> Tensor:
    """From -1/2 for the smallest to 1/2 for the largest; equal values share their mean rank."""
    _, place, counts = torch.unique(values, return_inverse=True, return_counts=True)
    below = counts.cumsum(0) - counts
    mean = below + (counts - 1) / 2
    shared: Tensor = mean[place] / max(1, len(values) - 1) - 0.5
    return shared.to(values)


class Covariance(Evolution):
    """`cma-es`: the steps are drawn with a covariance matrix that follows those that did well."""

    def __init__(self, spec: TrialSpec, network: nn.Module) -> None:
        super().__init__(spec, network)
        if self.size > MOST:
            raise TrainingError(
                f"{spec.model} has {self.size:,} parameters, but cma-es trains at most {MOST:,}: use optimiser='es'"
            )
        self.search = CMA(self.size, spec.population, spec.sigma)

    def _direction(self, mean: Tensor, inputs: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        draws = torch.randn(self.spec.population, self.size, generator=generator, dtype=torch.float64)
        values = self._losses(mean + self.search.steps(draws).to(mean), inputs, labels)
        return -self.search.update(draws, values.cpu())

    def tensors(self) -> dict[str, Tensor]:
        return self.search.state

    def load(self, tensors: dict[str, Tensor]) -> None:
        super().load(tensors)
        self.search.state = tensors


class CMA:
    """The (mu/mu_w, lambda)-CMA-ES of Hansen's tutorial (arXiv:1604.00772) with positive weights, in float64.

    `steps(draws)` makes steps from standard normal draws (lambda, N); `update(draws, losses)` adapts matrix and step
    size, and gives the step of the mean. Where the mean is, the caller knows.
    """

    def __init__(self, size: int, population: int, sigma: float) -> None:
        n, half = size, population // 2
        raw = torch.tensor([log((population + 1) / 2) - log(i + 1) for i in range(half)], dtype=torch.float64)
        self.weights = raw / raw.sum()
        mass = 1.0 / float(self.weights.square().sum())
        self.mass = mass
        self.c_path = (4 + mass / n) / (n + 4 + 2 * mass / n)
        self.c_sigma = (mass + 2) / (n + mass + 5)
        self.c_one = 2 / ((n + 1.3) ** 2 + mass)
        self.c_many = min(1 - self.c_one, 2 * (0.25 + mass - 2 + 1 / mass) / ((n + 2) ** 2 + mass))
        self.damping = 1 + 2 * max(0.0, sqrt((mass - 1) / (n + 1)) - 1) + self.c_sigma
        self.expected = sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
        """The expected norm of a standard normal vector."""
        self.interval = max(1, int(1 / (10 * n * (self.c_one + self.c_many))))
        """Generations between two decompositions of the matrix."""
        zeros = torch.zeros(n, dtype=torch.float64)
        self.state = {
            "covariance": torch.diag(zeros + 1), "axes": torch.diag(zeros + 1), "lengths": zeros + 1, "path": zeros,
            "sigma_path": zeros.clone(), "sigma": torch.full((1,), sigma, dtype=torch.float64),
            "generation": torch.zeros(1, dtype=torch.int64),
        }  # fmt: skip

    @property
    def sigma(self) -> float:
        """The size of the steps."""
        return float(self.state["sigma"])

    def steps(self, draws: Tensor) -> Tensor:
        """One step for each row of standard normal numbers."""
        return self.sigma * self._shaped(draws)

    def _shaped(self, draws: Tensor) -> Tensor:
        return (draws * self.state["lengths"]) @ self.state["axes"].t()

    def update(self, draws: Tensor, values: Tensor) -> Tensor:
        """Adapt to the losses of these steps; the step of the mean."""
        s = self.state
        best = draws[values.argsort(stable=True)[: len(self.weights)]]
        shaped = self._shaped(best)
        mean, white = self.weights @ shaped, s["axes"] @ (self.weights @ best)  # C^(-1/2) mean, without its inverse
        step = self.sigma * mean
        generation = int(s["generation"]) + 1
        sigma_path = (1 - self.c_sigma) * s["sigma_path"] + sqrt(self.c_sigma * (2 - self.c_sigma) * self.mass) * white
        length = float(torch.linalg.vector_norm(sigma_path)) / self.expected
        stalled = length / sqrt(1 - (1 - self.c_sigma) ** (2 * generation)) > 1.4 + 2 / (len(step) + 1)
        path = (1 - self.c_path) * s["path"]
        if not stalled:  # a path that is very long already would widen the matrix too fast
            path = path + sqrt(self.c_path * (2 - self.c_path) * self.mass) * mean
        lost = self.c_one * self.c_path * (2 - self.c_path) if stalled else 0.0
        covariance = (1 - self.c_one - self.c_many + lost) * s["covariance"]
        covariance += self.c_one * torch.outer(path, path) + self.c_many * (shaped.t() * self.weights) @ shaped
        sigma = s["sigma"] * exp(min(1.0, (self.c_sigma / self.damping) * (length - 1)))
        self.state = s | {
            "covariance": covariance, "path": path, "sigma_path": sigma_path, "sigma": sigma,
            "generation": s["generation"] + 1,
        }  # fmt: skip
        if generation % self.interval == 0:
            self._decompose()
        return step

    def _decompose(self) -> None:
        both = (self.state["covariance"] + self.state["covariance"].t()) / 2
        squares, axes = torch.linalg.eigh(both)
        # LAPACK leaves columns behind one another: products would round otherwise than those of a resumed trial.
        self.state |= {"covariance": both, "axes": axes.contiguous(), "lengths": squares.clamp(min=1e-300).sqrt()}
