from oracle.contract.findings import Finding, Findings, Kind


def test_only_what_no_rounding_explains_is_wrong():
    found = [Finding("tokens", kind, "another token") for kind in Kind]
    findings = Findings()
    for finding in found:
        findings.add(finding)
    assert findings.found == found
    assert findings.wrong() == found[:1]


def test_signature_is_check_and_blame_whatever_the_numbers_are():
    one = Finding("scores", Kind.WRONG, "0.1 off", "r0", 3, 0.1, 0.01, ("logprobs",))
    other = Finding("scores", Kind.WRONG, "0.2 off", "r1", 5, 0.2, 0.02, ("logprobs",))
    assert one.signature == other.signature == ("scores", ("logprobs",))
    assert one.signature != Finding("scores", Kind.WRONG, "0.1 off", blame=("logits",)).signature


def test_things_that_a_check_judged_add_up():
    findings = Findings()
    findings.see("tokens")
    findings.see("tokens", 4)
    assert findings.num_seen == {"tokens": 5}
    assert findings.num_seen["ends"] == 0
