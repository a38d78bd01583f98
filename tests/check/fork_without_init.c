#include "ends.h"

int main(void)
{
	struct ends ends;
#ifdef FIXED
	MUST(!ibv_fork_init());
#endif
	open_device(&ends);
	pid_t child = fork(); // BUG: fork-without-init
	if (child == 0)
		_exit(0);
	MUST(waitpid(child, NULL, 0) == child);
	close_device(&ends);
	return 0;
}
