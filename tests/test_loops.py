from __future__ import annotations

from dataclasses import fields

import numpy as np
from hypothesis import given

from collsim.engine.loops import loops_of
from collsim.engine.program import Program
from tests.programs import B, Edge, Plan, programs


def assert_same(loops, program):
    for item in fields(Program):
        assert np.array_equal(getattr(loops.flat(), item.name), getattr(program, item.name)), item.name


@given(programs())
def test_a_program_comes_back_from_its_loops(program):
    assert_same(loops_of(program), program)


def test_visits_of_one_size_and_rate_may_take_different_times():
    plan = Plan()
    link = plan.link(B)
    plan.transfer(7, link)
    plan.transfer(7, link)
    program = plan.program()
    program.visit_busy[1] = 8  # as if a protocol put more on the wire
    assert_same(loops_of(program), program)


def test_an_edge_to_a_later_node_is_not_forward():
    plan = Plan()
    link = plan.link(B)
    plan.transfer(1, link, after=[1])
    plan.transfer(1, link)
    assert not loops_of(plan.program()).is_forward
    plan = Plan()
    link = plan.link(B)
    plan.transfer(1, link)
    plan.transfer(1, link, after=[Edge(0)])
    assert loops_of(plan.program()).is_forward
