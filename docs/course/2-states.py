# Chapter 2: bring two queue pairs from RESET to RTS.
from ends import End, open_first_device

NAMES = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"]
with open_first_device() as context:
    ends = [End(context), End(context)]
    for number, end in enumerate(ends):
        print(f"queue pair {number}: {NAMES[end.qp.qp_state]}")
        end.connect(ends[1 - number])
        print(f"queue pair {number}: {NAMES[end.qp.qp_state]}")
    for end in ends:
        end.close()
