/* A program that is linked with libibverbs and uses no device: it may have sent its data by TCP. */
#include <infiniband/verbs.h>

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 99)
		return ibv_fork_init();
#ifdef FIXED
	struct ibv_device **list = ibv_get_device_list(0);
	ibv_free_device_list(list);
#endif
	return 0;
}
