# SPDX-License-Identifier: Apache-2.0
"""Tests of what tables compute run on TensorFlow's own ops and on the native kernels."""

import pytest

from estimator_emb.native import choice

ON_BOTH = (
    "test_config_dicts",
    "test_every_optimizer",
    "test_host",
    "test_non_finite",
    "test_servers",
    "test_wrong_rates",
)


SLOW_WITH_TENSORFLOW = {
    "test_all_fields_in_all_modes",
    "test_a_chief_that_starts_again_leaves_servers_as_they_are",
    "test_servers_that_lost_variables_take_all_back",
    "test_a_worker_says_which_steps_are_lost",
    "test_a_worker_that_never_comes_holds_nobody_up",
    "test_no_update_of_three_trainers_is_lost",
    "test_one_trainer_and_two_servers_train_as_one_process_does",
    "test_servers_that_hold_another_training_are_restored",
}
"""Tests that take seconds; what they show of the kernels, others show too."""

SLOW_WITH_NATIVE = {
    "test_an_optimizer_that_scales_the_loss_is_refused",
    "test_clipping_between_compute_and_apply_leaves_the_tables_alone",
    "test_gradients_that_are_only_looked_at",
    "test_trains_tables",
    "test_two_optimizers_of_one_table_are_refused",
    "test_what_model_fn_returns_as_it_is_is_looked_up_too",
    "test_what_replace_made_unusable_is_caught_at_use",
    "test_without_tables_it_may_scale_the_loss",
}
"""Tests of what model_fn does with activations, which is over before the kernels come in; and of
rules that take long to compile, beside others of the same classes."""


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__ in ON_BOTH:
        slow = {"tensorflow": SLOW_WITH_TENSORFLOW, "native": SLOW_WITH_NATIVE}
        marks = {
            kernels: [pytest.mark.slow] if metafunc.function.__name__ in of_them else []
            for kernels, of_them in slow.items()
        }
        each = [pytest.param(kernels, marks=marks[kernels]) for kernels in marks]
        metafunc.parametrize("kernels", each, indirect=True)


NATIVE = choice.native_kernels


def _without_falling_back(*args):
    found = NATIVE(*args)
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def kernels(request, monkeypatch):
    """Turns the native kernels on or off; returns "native" or "tensorflow"."""
    asked = getattr(request, "param", "tensorflow")
    if asked == "native":
        request.getfixturevalue("native")
        monkeypatch.setattr(choice, "native_kernels", _without_falling_back)
    else:
        monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "0")
    return asked
