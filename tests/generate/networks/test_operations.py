from __future__ import annotations

from remat.generate.networks.operations import Device, Operation, Tensor, saved_tensors, stage

DEVICE = Device(flops=10, bandwidth=1)


def linear(name: str, read: Tensor, write: Tensor, *, flops: int = 0, weights: int = 0) -> Operation:
    return Operation(name, (read,), (write,), (read,), flops=flops, weights=weights)


def test_a_kernel_takes_the_longer_of_arithmetic_and_traffic() -> None:
    x, y = Tensor("x", 4), Tensor("y", 6)
    assert linear("bound by memory", x, y, flops=10, weights=5).forward_time(DEVICE) == 4 + 6 + 5
    assert linear("bound by arithmetic", x, y, flops=1000, weights=5).forward_time(DEVICE) == 100


def test_a_backward_does_both_products_unless_the_input_needs_no_gradient() -> None:
    product = linear("product", Tensor("x", 4), Tensor("y", 6), flops=1000)
    assert product.backward_time(DEVICE) == 200
    assert product.backward_time(DEVICE, input_gradient=False) == 100


def test_saved_tensors_leave_out_the_ends_and_count_once() -> None:
    x, a, b, y = (Tensor(name, size) for name, size in (("x", 1), ("a", 2), ("b", 4), ("y", 8)))
    operations = [linear("1", x, a), linear("2", a, b), Operation("3", (a, b), (y,), (a, b, y))]
    assert saved_tensors(operations) == (a, b)


def test_workspaces_of_a_hand_worked_stage() -> None:
    x, a, b, y = (Tensor(name, size) for name, size in (("x", 1), ("a", 10), ("b", 20), ("y", 5)))
    operations = [
        linear("1", x, a),
        Operation("2", (a,), (b,), (b,)),  # keeps its output only: a is transient
        linear("3", b, y, weights=3),
    ]
    made = stage(name="s", operations=operations, device=DEVICE)
    assert made["output_size"] == 5
    assert made["saved_size"] == 20  # b; x is the input
    # Forward: a 10, a+b 30, b+y 25; beyond the output: 25. Saving b: beyond output and b 5.
    assert made["forward_workspace"] == 25
    assert made["saving_workspace"] == 5
    # Backward: b and its gradient and the weights' 43, then b with the gradients of b and a 50, then those
    # of a and x 11; beyond b and the input's gradient: 29.
    assert made["backward_workspace"] == 29


def test_in_place_operations_take_over_their_input() -> None:
    x, a, b, y = (Tensor(name, 10) for name in "xaby")
    twice = [linear("1", x, a), Operation("relu", (a,), (b,), (b,)), linear("2", b, y)]
    once = [linear("1", x, a), Operation("relu", (a,), (b,), (b,), in_place=True), linear("2", b, y)]
    peaks = [stage(name="s", operations=each, device=DEVICE)["forward_workspace"] for each in (twice, once)]
    assert peaks == [10, 10]  # b beside y
    first, second = [linear("1", x, a), Operation("relu", (a,), (y,), (y,))], []
    second = [linear("1", x, a), Operation("relu", (a,), (y,), (y,), in_place=True)]
    peaks = [stage(name="s", operations=each, device=DEVICE)["forward_workspace"] for each in (first, second)]
    assert peaks == [10, 0]


def test_gradients_pass_through_a_sum_without_bytes_or_time() -> None:
    x, a, y = (Tensor(name, 10) for name in "xay")
    copied = Operation("sum", (x, a), (y,))
    passed = Operation("sum", (x, a), (y,), passes_gradient=True)
    assert copied.backward_time(DEVICE) == 30
    assert passed.backward_time(DEVICE) == 0
    with_copies, without = (
        stage(name="s", operations=[linear("1", x, a), last], device=DEVICE)["backward_workspace"]
        for last in (copied, passed)
    )
    assert (with_copies, without) == (20, 0)
