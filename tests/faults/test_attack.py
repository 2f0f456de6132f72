from faults.attack import Attack


def drawn(attack: Attack) -> list[tuple[int, float]]:
    return [(each.number, each.random.random()) for each in attack.tries("area", 20)]


def test_tries_are_drawn_from_seed_and_number() -> None:
    whole = drawn(Attack("test", seed=3, share=1))
    part = drawn(Attack("test", seed=3, share=0.2))
    assert [number for number, _ in whole] == list(range(20))
    assert len(part) == 4
    assert set(part) < set(whole)
    assert drawn(Attack("test", seed=3, share=0.2, only=7)) == [whole[7]]
    assert set(drawn(Attack("test", seed=4, share=1))).isdisjoint(whole)
    assert drawn(Attack("test", seed=3, share=2))[:20] == whole
    few = [each.number for each in Attack("test", seed=3, share=0.1).tries("area", 20, least=3)]
    assert few[:3] == [0, 1, 2]
    assert len(few) <= 5


def test_failures_are_counted_and_can_be_repeated() -> None:
    attack = Attack("tests/x.py::test_x", seed=3, share=1)
    for each in attack.tries("area", 4):
        with each:
            assert each.number != 2, "two"
    assert attack.counts == {("area", True): 3, ("area", False): 1}
    (failure,) = attack.failures
    assert "FAULTS_SEED=3 FAULTS_SHARE=1 FAULTS_ONLY=2" in failure
    assert "AssertionError: two" in failure
