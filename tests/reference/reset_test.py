"""ReSET against a table worked by hand, and its rules one by one."""

import numpy as np

from halfbyte_reference import reset
from halfbyte_reference.golden_decode import HAND_CLASSES, HAND_ENTROPIES

# window 4, tau0 .75, T_low .25, T_high 1. Columns: H, boundary before it, H_step, H_bar, T.
# H_step is the mean of the last 4 while the step has fewer than 4 entropies, then the step's mean; both exclude H.
HAND_TABLE = [
    (0.50, 0, 0.50, 0.50, 0.25),              # nothing before: H_step = H_bar = H, so the threshold is tau0
    (1.00, 0, 0.50, 0.50, 1.00),
    (0.00, 0, 1.5 / 2, 1.5 / 2, 0.25),
    (2.00, 0, 1.5 / 3, 1.5 / 3, 1.00),
    (1.00, 0, 3.5 / 4, 3.5 / 4, 1.00),        # step holds 4: its own mean from here on
    (0.25, 0, 4.5 / 5, 4.5 / 5, 0.25),        # this token is "\n\n"-like
    (0.50, 1, 3.25 / 4, 4.75 / 6, 0.25),      # window 0 2 1 .25; .8125 > .7917: uncertain, threshold .8125
    (3.00, 0, 3.75 / 4, 5.25 / 7, 1.00),
    (2.00, 0, 4.75 / 4, 8.25 / 8, 1.00),
    (1.50, 0, 5.75 / 4, 10.25 / 9, 1.00),
    (1.00, 0, 7.0 / 4, 11.75 / 10, 0.25),     # step .5 3 2 1.5: mean 1.75, uncertain, 1 < 1.75
    (0.00, 0, 8.0 / 5, 12.75 / 11, 0.25),
    (0.00, 0, 8.0 / 6, 12.75 / 12, 0.25),     # one newline
    (0.50, 0, 8.0 / 7, 12.75 / 13, 0.25),     # one newline: two in a row
    (0.75, 1, 1.5 / 4, 13.25 / 14, 1.00),     # window 1 0 0 .5; confident; .75 >= tau0 counts
    (0.25, 0, 1.25 / 4, 14.0 / 15, 0.25),
    (2.00, 0, 1.5 / 4, 14.25 / 16, 1.00),     # one newline, but no second
    (1.00, 0, 3.5 / 4, 16.25 / 17, 1.00),
    (0.50, 0, 4.0 / 4, 17.25 / 18, 0.25),     # step .75 .25 2 1: mean 1 > .958: uncertain
    (1.25, 0, 4.5 / 5, 17.75 / 19, 1.00),
]


def test_hand_worked_table():
    policy = reset.Reset(tau0=0.75, t_low=0.25, window=4)
    assert [row[0] for row in HAND_TABLE] == HAND_ENTROPIES
    for t, (h, boundary, h_step, h_bar, temperature) in enumerate(HAND_TABLE):
        assert reset.at_boundary(HAND_CLASSES[:t]) == bool(boundary), t
        got = policy.step(h, bool(boundary))
        assert got == (temperature, h_step, h_bar, h_step > h_bar), t


def test_boundary_rules():
    assert [reset.piece_class(t) for t in ("\n\n", "a.\n\nb", "\n", " \n", "\n ", "", "x\n")] == [2, 2, 1, 0, 0, 0, 0]
    assert not reset.at_boundary([]) and not reset.at_boundary([1]) and not reset.at_boundary([1, 0])
    assert reset.at_boundary([2]) and reset.at_boundary([0, 1, 1]) and reset.at_boundary([1, 1, 1])
    assert not reset.at_boundary([2, 0]) and not reset.at_boundary([1, 0, 1])


def test_equal_entropies_are_confident_and_threshold_is_inclusive():
    policy = reset.Reset(tau0=0.5, t_low=0.1, window=2)
    assert [policy.step(0.5, False)[0] for _ in range(6)] == [1.0] * 6       # H_step == H_bar: not uncertain; .5 >= tau0
    policy = reset.Reset(tau0=np.nextafter(0.5, 1), t_low=0.1, window=2)
    assert [policy.step(0.5, False)[0] for _ in range(6)] == [0.1] * 6
