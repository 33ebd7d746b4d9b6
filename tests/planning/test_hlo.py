"""Cycles and collectives from a compiled program's text."""

import pytest

from sake_jax.planning.hlo import byte_size, program_cost

TEXT = """HloModule jit_run

%layer (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %fusion.1 = f32[8]{0} fusion(%p), kind=kLoop, backend_config={"estimated_cycles":"100"}
  %all-reduce.1 = bf16[4,8]{1,0} all-reduce(%fusion.1), to_apply=%add
}

%layer_cond (p: (s32[], f32[8])) -> pred[] {
  %constant.1 = s32[]{:T(128)} constant(32)
  ROOT %lt = pred[] compare(%i, %constant.1), direction=LT
}

%some (p: f32[8]) -> f32[8] {
  %fusion.3 = f32[8] fusion(%p), backend_config={"estimated_cycles":"7"}
}

%all (p: f32[8]) -> f32[8] {
  %fusion.4 = f32[8] fusion(%p), backend_config={"estimated_cycles":"20"}
}

%step (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %while.1 = (s32[], f32[8]) while(%t), condition=%layer_cond, body=%layer
  %fusion.2 = f32[8]{0} fusion(%p), backend_config={"estimated_cycles":"50"}
  %all-gather-start.1 = (f32[2], f32[8]) all-gather-start(%fusion.2), dimensions={0}
  %conditional.1 = f32[8] conditional(%b, %p, %p), branch_computations={%some, %all}
}

%step_cond (p: (s32[], f32[8])) -> pred[] {
  %constant.2 = s32[] constant(4)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %fusion.5 = f32[8] fusion(%p), backend_config={"estimated_cycles":"1"}
  %while.2 = (s32[], f32[8]) while(%t), condition=%step_cond, body=%step
}
"""


def test_loops_and_choices_count():
    found = program_cost(TEXT)
    assert found.cycles == 1 + 4 * (32 * 100 + 50 + 20)
    assert found.sent == {"all-reduce": 4 * 32 * 64, "all-gather": 4 * 40}


def test_a_choice_by_shares():
    """As with a cache, whose reads are whole at the first step of a block only."""
    assert program_cost(TEXT, (0.75, 0.25)).cycles == 1 + 4 * (32 * 100 + 50 + 0.75 * 7 + 0.25 * 20)
    # Shares for another number of branches are about another choice.
    assert program_cost(TEXT, (0.5, 0.25, 0.25)).cycles == program_cost(TEXT).cycles


def test_a_part_of_it():
    assert (program_cost(TEXT) * 0.25).cycles == program_cost(TEXT).cycles / 4


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [("pred[3]{0}", 3), ("s8[2,2]", 4), ("u32[]", 4), ("(f64[2], bf16[5])", 26)],
)
def test_sizes(shapes, expected):
    assert byte_size(shapes) == expected
