"""A user's training script, with the two lines that make its steps ranges. Arguments: how many steps, seconds each."""

import sys
import time


def train_step(batch):
    time.sleep(float(sys.argv[2]))
    return batch + 1


from mtp_bench import ranges  # noqa: E402

train_step = ranges.steps(train_step, first=2, count=3)

for batch in range(int(sys.argv[1])):
    assert train_step(batch) == batch + 1
print("trained", flush=True)
