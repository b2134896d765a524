"""Every permitted difference, with its reason.

The ladder, from the strictest rung down:

1. *Bitwise*: both sides do the same operations on the same shapes, so nothing may differ.
   One sequence, no cache, float32 and half precision: the reference's logits, all rows.
   In the invariant manner: any row of logits against the same row of its request run by itself.
   (In float64 the reference computes norms and rotary angles in float32, so no bits can agree there.)
2. *Float64*: sums of a few thousand terms of size 1 err by about 1e-13; `FLOAT64_BOUND` leaves room for
   depth, and every planted fault moves logits by more.
3. *Noise of the reference itself*: where shapes differ, library kernels add up in another order, so the
   subject may err about as much as the reference does. The reference's distance from the float64 witness,
   on the same tokens and in the same dtype, is measured in the run; `NOISE_FACTOR` times that is the bound.
4. *Half precision*: the mean error of each case, and largest and mean error of the whole run, at most
   `HALF_ERROR_FACTOR` times the reference's. In both manners the quotients lie within 5 % of 1.
"""

FLOAT64_BOUND = 1e-10
"""Largest difference of float64 logits from the witness."""

NOISE_FACTOR = 8.0
"""Times the reference's own error: the largest of a handful of rounding errors is itself a noisy figure."""

SMALLEST_NOISE_IN_EPS = 4.0
"""The noise is taken as at least this many units in the last place of the largest logit."""

ORACLE_AGREEMENT_BOUND = 5e-4
"""Largest difference between witness and float32 reference: beyond it one of the two oracles is wrong.

The noise rung scales with that difference, so it needs this lid, or a broken oracle would excuse anything.
"""

HALF_ERROR_FACTOR = 2.0
"""Times the reference's error in the same half precision."""

MAX_NEAR_TIE_RATE = 0.01
"""Largest share of float32 and float64 positions that may be explained by a near tie.

About 1e-4 is expected; planted exact ties are counted apart.
"""

HALF_NEAR_TIE_FACTOR = 3.0
"""Times the near ties of the reference itself in half precision, from 0 to 11 % of the tokens of tiny checkpoints.

An engine that is right takes other tokens about as often, at other places.
"""
