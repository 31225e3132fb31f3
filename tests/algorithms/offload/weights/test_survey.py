"""Check the signs of Table 1 in the survey of Gusak et al. 2022 against our schedules."""

from benchmarks import survey_table

EXPECTED = {
    # computation of a device, communication, batch, FLOP of all devices
    "rematerialisation": "+=++",
    "offloading of activations": "=++=",
    "offloading of weights": "=++=",
    "offloading of optimizer states": "=++=",
    "data parallelism": "-++=",
    "data parallelism, states shared out (ZeRO 3)": "-++=",
    "model parallelism": "-++=",
    "pipeline parallelism": "-++=",
    "states of 8 bits": "==+=",
}


def test_directions_of_change():
    found = {name: "".join(signs.values()) for name, signs in survey_table.directions().items()}
    assert found == EXPECTED
