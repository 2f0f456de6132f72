from faults.attack import Attack


def test_failures_are_counted_and_can_be_repeated() -> None:
    attack = Attack("tests/x.py::test_x", seed=3, share=1)
    for attempt in attack.tries("area", 4):
        with attempt:
            assert attempt.number != 2, "two"
    assert attack.counts == {("area", True): 3, ("area", False): 1}
    (failure,) = attack.failures
    assert "FAULTS_SEED=3 FAULTS_SHARE=1 FAULTS_ONLY=2" in failure
    assert "AssertionError: two" in failure
