"""Seeds that have found something once, and what. A seed means another run when workloads or faults are drawn
otherwise, so each finding has a scenario, too, where it could be told as one."""

KEPT: dict[int, str] = {
    6: "segments of a checkpoint that was given up stayed for ever, because the job ended before the next sweep",
    11: "a commit failed while the final checkpoint was published: the last commits were never tried again",
    43: "one deletion that failed kept all the others from happening",
    51: "metadata of a fenced driver with a number above the newest published one was never swept",
    131: "a driver resumed a job that had ended and been deleted from: it says so, and changes nothing",
}
