"""The role weights alone: `pyinfra INVENTORY tests/lab/weights_play.py`."""

from roles.weights.tasks import weights

weights()
