#include "ends.h"

int main(void)
{
	struct ends ends;
	MUST(!ibv_fork_init());
	open_device(&ends);
	make_ends(&ends, 8);
	pid_t child = fork();
	if (child == 0) {
#ifndef FIXED
		struct ibv_wc wc;
		ibv_poll_cq(ends.send_cq, 1, &wc); // BUG: used-after-fork
		_exit(0);
#endif
		_exit(0);
	}
	MUST(waitpid(child, NULL, 0) == child);
	close_device(&ends);
	return 0;
}
