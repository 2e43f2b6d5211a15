"""Distributions of `torch.distributions`: draws, densities, moments and gradients are as in eager."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributions as dist
from beside_eager import assert_as_eager

Make = Callable[[torch.Tensor, torch.Tensor], dist.Distribution]

# Parameters are two matrices of numbers between 0.2 and 0.8.
MAKERS: dict[str, Make] = {
    "bernoulli": lambda a, b: dist.Bernoulli(a),
    "bernoulli_of_logits": lambda a, b: dist.Bernoulli(logits=a),
    "beta": lambda a, b: dist.Beta(a, b),
    "binomial": lambda a, b: dist.Binomial(10, a),
    "categorical": lambda a, b: dist.Categorical(a),
    "categorical_of_logits": lambda a, b: dist.Categorical(logits=a),
    "cauchy": lambda a, b: dist.Cauchy(a, b),
    "chi2": lambda a, b: dist.Chi2(a),
    "continuous_bernoulli": lambda a, b: dist.ContinuousBernoulli(a),
    "dirichlet": lambda a, b: dist.Dirichlet(a),
    "exponential": lambda a, b: dist.Exponential(a),
    "fisher_snedecor": lambda a, b: dist.FisherSnedecor(a + 5, b + 5),
    "gamma": lambda a, b: dist.Gamma(a, b),
    "geometric": lambda a, b: dist.Geometric(a),
    "gumbel": lambda a, b: dist.Gumbel(a, b),
    "half_cauchy": lambda a, b: dist.HalfCauchy(a),
    "half_normal": lambda a, b: dist.HalfNormal(a),
    "independent": lambda a, b: dist.Independent(dist.Normal(a, b), 1),
    "inverse_gamma": lambda a, b: dist.InverseGamma(a + 3, b),
    "kumaraswamy": lambda a, b: dist.Kumaraswamy(a, b),
    "laplace": lambda a, b: dist.Laplace(a, b),
    "lkj_cholesky": lambda a, b: dist.LKJCholesky(3, a[0, 0]),
    "log_normal": lambda a, b: dist.LogNormal(a, b),
    "logistic_normal": lambda a, b: dist.LogisticNormal(a, b),
    "low_rank_normal": lambda a, b: dist.LowRankMultivariateNormal(a[0], b.T, a[0]),
    "mixture": lambda a, b: dist.MixtureSameFamily(dist.Categorical(a), dist.Normal(a, b)),
    "multinomial": lambda a, b: dist.Multinomial(6, a),
    "multivariate_normal": lambda a, b: dist.MultivariateNormal(a[0], torch.diag(b[0])),
    "negative_binomial": lambda a, b: dist.NegativeBinomial(5, a),
    "normal": lambda a, b: dist.Normal(a, b),
    "one_hot": lambda a, b: dist.OneHotCategorical(a),
    "one_hot_straight_through": lambda a, b: dist.OneHotCategoricalStraightThrough(a),
    "pareto": lambda a, b: dist.Pareto(a, b),
    "poisson": lambda a, b: dist.Poisson(a),
    "relaxed_bernoulli": lambda a, b: dist.RelaxedBernoulli(torch.tensor(0.5), a),
    "relaxed_one_hot": lambda a, b: dist.RelaxedOneHotCategorical(torch.tensor(0.5), a),
    "student_t": lambda a, b: dist.StudentT(a + 2, b),
    "transformed": lambda a, b: dist.TransformedDistribution(dist.Normal(a, b), [dist.transforms.SigmoidTransform()]),
    "uniform": lambda a, b: dist.Uniform(a, a + b),
    "von_mises": lambda a, b: dist.VonMises(a, b),
    "weibull": lambda a, b: dist.Weibull(a, b),
}


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    return tuple((torch.rand(3, 4) * 0.6 + 0.2).requires_grad_() for _ in range(2))  # type: ignore[return-value]


def facts(given: dist.Distribution) -> dict[str, Any]:
    """Return what a distribution tells of itself; what it does not know is left out."""
    sample = given.sample()
    result: dict[str, Any] = {"sample": sample, "more": given.sample(torch.Size([2])), "sizes": given.batch_shape}
    if given.has_rsample:
        result["differentiable"] = given.rsample(torch.Size([2]))
    questions: dict[str, Callable[[], Any]] = {
        "log_prob": lambda: given.log_prob(sample),
        "mean": lambda: given.mean,
        "variance": lambda: given.variance,
        "mode": lambda: given.mode,
        "entropy": lambda: given.entropy(),
        "support": lambda: given.enumerate_support(),
    }
    for name, ask in questions.items():
        with contextlib.suppress(NotImplementedError, AttributeError):
            result[name] = ask()
    return result


@pytest.mark.parametrize("name", MAKERS)
def test_distribution_is_as_in_eager(name: str) -> None:
    assert_as_eager(lambda a, b: facts(MAKERS[name](a, b)), *arguments(), misses=None)


COMPARED = [
    "bernoulli",
    "beta",
    "categorical",
    "dirichlet",
    "exponential",
    "gamma",
    "geometric",
    "gumbel",
    "half_normal",
]
COMPARED += ["independent", "laplace", "multivariate_normal", "normal", "one_hot", "pareto", "poisson", "uniform"]


@pytest.mark.parametrize("name", COMPARED)
def test_divergence_is_as_in_eager(name: str) -> None:
    make = MAKERS[name]
    assert_as_eager(lambda a, b: dist.kl_divergence(make(a, b), make(b, a)), *arguments(), misses=None)


def test_arguments_that_a_distribution_refuses_are_refused_as_in_eager() -> None:
    assert_as_eager(lambda a, b: dist.Normal(a, -b, validate_args=True).loc, *arguments(), misses=None)
    assert_as_eager(lambda a, b: dist.Bernoulli(a, validate_args=True).log_prob(b + 3), *arguments(), misses=None)


def test_distribution_from_outside_is_as_in_eager() -> None:
    given = dist.Normal(torch.tensor(1.0), torch.tensor(2.0))
    assert_as_eager(lambda a, b: given.log_prob(a) + given.rsample(b.shape) * b, *arguments())
