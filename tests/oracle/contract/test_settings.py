"""How much is tried follows from the profile, unless it is said otherwise."""

from oracle.contract.settings import PROFILES, DockSettings, Profile


def test_checks_count_unless_others_are_named():
    assert DockSettings().wants("law")
    assert [DockSettings(checks=("ends",)).wants(check) for check in ("ends", "law")] == [True, False]


def test_profiles_grow():
    amounts = [PROFILES[name] for name in ("quick", "ci", "deep")]
    assert sorted(amounts, key=lambda own: own.num_constructions * own.num_runs) == amounts


def test_amount_is_the_profiles_unless_told():
    assert DockSettings(profile="ci").amount == PROFILES["ci"]
    assert DockSettings(num_constructions=2, num_runs=3, shrink_seconds=0.0).amount == Profile(2, 3, 0.0)
