from oracle.explain.suspicion import Moment, Suspect, Suspicion


def test_suspicions_stand_in_the_order_in_which_a_step_goes():
    signs = [
        Suspicion(step, moment, rank, Suspect("model", "norm"), "off")
        for step in (0, 1)
        for moment in Moment
        for rank in (0, 1)
    ]
    assert sorted(signs, key=lambda sign: sign.order) == signs
