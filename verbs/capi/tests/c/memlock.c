/* Registered memory is counted against a limit of 8 pages, as the kernel counts what adapters pin. With "ulimit" the
 * program sets the limit of its process itself; with "none" there is no limit. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "expect.h"

static char *range;
static long page;

static struct ibv_mr *region(size_t offset, size_t length, int rights)
{
	return ibv_reg_mr(pd, range + offset, length, IBV_ACCESS_LOCAL_WRITE | rights);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CLAIM(argc == 2 && list && (ctx = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(ctx)));
	page = sysconf(_SC_PAGESIZE);
	range = mmap(NULL, 32 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(range != MAP_FAILED);
	if (!strcmp(argv[1], "none")) {
		CLAIM(region(0, 32 * page, 0));
		return 0;
	}
	struct rlimit limit = {8 * page, 8 * page};
	CLAIM(strcmp(argv[1], "ulimit") || !setrlimit(RLIMIT_MEMLOCK, &limit));

	REFUSED(region(0, 9 * page, 0), ENOMEM);
	struct ibv_mr *first = region(0, 6 * page, 0), *second = region(7 * page - 1, 2, 0);
	CLAIM(first && second); /* two bytes on two pages */
	REFUSED(region(0, 1, 0), ENOMEM);
	/* What is paged on demand is not pinned. */
	CLAIM(region(0, 32 * page, IBV_ACCESS_ON_DEMAND));
	/* After a change of the range its new pages count. */
	CLAIM(!ibv_dereg_mr(second));
	CLAIM(!ibv_rereg_mr(first, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, range, 2 * page, 0));
	CLAIM(region(0, 6 * page, 0));
	REFUSED(region(0, 1, 0), ENOMEM);
	CLAIM(!ibv_dereg_mr(first));
	CLAIM(region(0, 2 * page, 0));
	return 0;
}
