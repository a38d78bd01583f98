/* Breakpoints of perf_event_open(2), by which pumice sees what a program reads. Included behind ends.h. */
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>

/* Where the machine gives programs no breakpoints, nothing is found: the program ends with 77. */
static void need_breakpoints(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attr),
		.bp_type = HW_BREAKPOINT_RW,
		.bp_addr = (uintptr_t)memory,
		.bp_len = HW_BREAKPOINT_LEN_8,
		.sample_period = 1,
		.disabled = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.remove_on_exec = 1,
		.sigtrap = 1,
	};
	int event = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	if (event < 0)
		exit(77);
	close(event);
}
