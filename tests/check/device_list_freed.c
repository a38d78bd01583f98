/* The device is opened when its list is freed. */
#include "ends.h"

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *device;
	MUST(list && (device = list[0]));
#ifdef FIXED
	struct ibv_context *context = ibv_open_device(device);
	ibv_free_device_list(list);
#else
	ibv_free_device_list(list);
	struct ibv_context *context = ibv_open_device(device); // BUG: used-after-destroy
#endif
	MUST(context);
	/* It is open, and may be opened again. */
	struct ibv_context *other = ibv_open_device(device);
	MUST(other && !ibv_close_device(other) && !ibv_close_device(context));
	return 0;
}
