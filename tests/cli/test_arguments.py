# SPDX-License-Identifier: Apache-2.0
"""Options of every subcommand stand anywhere; what stands after a program is the program's own."""

import itertools

import pytest

from estimator_emb.cli import main as main_lib

CALLS = {
    "inspect": (["A"], [["--values"], ["--against", "B"], ["--plot=x.png"]]),
    "convert": (["A", "B"], [["--table", "a*"], ["--table=b"], ["--reverse"], ["--hosts=2"]]),
    "export": (["A", "B"], [["--to", "npz"], ["--table=a"], ["--slots"]]),
    "migrate": (["a.py", "b.py"], [["--write"]]),
}
"""Subcommand -> its names, in their order, and its options."""
OF_PROGRAMS = {
    "run": ["--shards=2"],
    "cluster": ["--ps", "2"],
    "check": ["--replicas=2"],
    "compare": ["--steps", "3"],
}
"""Subcommand that takes a program -> an option of its own."""


def parse(name, args):
    return main_lib.parser_of(name).parse(args)


def test_every_subcommand_is_here():
    assert set(CALLS) | set(OF_PROGRAMS) == set(main_lib.SUBCOMMANDS)


@pytest.mark.parametrize("name", CALLS)
def test_options_stand_before_between_and_behind_names(name):
    names, options = CALLS[name]
    expected = parse(name, [*itertools.chain(*options), *names])
    words = [*([one] for one in names), *options]
    for order in itertools.permutations(words):
        if [word[0] for word in order if word in words[: len(names)]] != names:
            continue
        tables = [word for word in order if "--table" in word[0]]
        if tables != [word for word in options if "--table" in word[0]]:
            continue
        assert parse(name, [*itertools.chain(*order)]) == expected, order


def test_names_that_begin_with_a_dash():
    options = parse("export", ["--to=npz", "--", "-a", "-b"])
    assert (options.checkpoint, options.out) == ("-a", "-b")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["A", "--to=npz", "B", "C"], "unrecognized arguments: C"),
        (["A", "--to=npz", "--tables=x", "B"], "unrecognized arguments: --tables=x B"),
        (["A", "B"], "one of the arguments --to --like is required"),
        (["--to=npz", "--slots"], "the following arguments are required: CHECKPOINT"),
        (["A", "--to=npz", "B", "--like=x"], "argument --like: not allowed with argument --to"),
    ],
)
def test_what_is_wrong_with_names_and_options(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main_lib.main(["export", *arguments])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"estimator-emb export: error: {message}"


@pytest.mark.parametrize(
    "own", [[], ["a"], ["--shards=3", "--steps", "-m", "x"], ["--", "a", "--"]]
)
@pytest.mark.parametrize("before", [[], ["--tf-v1"]])
@pytest.mark.parametrize("name", OF_PROGRAMS)
def test_what_stands_after_a_program_is_its_own(name, before, own):
    options = parse(name, [*OF_PROGRAMS[name], *before, __file__, *own])
    assert options.program == [__file__, *own]
    assert options.tf_v1 == bool(before)
    for spelling in (["-m", "json.tool"], ["-mjson.tool"]):
        options = parse(name, [*OF_PROGRAMS[name], *before, *spelling, *own])
        assert options.program == ["-m", "json.tool", *own]
        assert options.tf_v1 == bool(before)


@pytest.mark.parametrize("name", OF_PROGRAMS)
def test_a_program_behind_two_dashes(name):
    options = parse(name, ["--tf-v1", "--", __file__, "--", "a"])
    assert options.program == [__file__, "--", "a"] and options.tf_v1
