/* A package that brings a libibverbs of its own: `main` loads plugin.so, which it finds only in the folder that main's
 * RUNPATH names, and asks it whose verbs it has. Says "bundled" or "device". -DPART_x builds the parts. */
#include <stdio.h>
#ifdef PART_VERBS
/* Both libraries: ibv_whose@@IBVERBS_1.1. */
const char *ibv_whose(void)
{
	return WHOSE;
}
#elif defined(PART_PLUGIN)
const char *ibv_whose(void);
const char *answer(void)
{
	return ibv_whose();
}
#else
#include <dlfcn.h>
int main(void)
{
	void *self = dlopen(NULL, RTLD_NOW), *plugin = dlopen("plugin.so", RTLD_NOW);
	if (!self || !plugin) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	const char *(*answer)(void) = (const char *(*)(void))dlsym(plugin, "answer");
	puts(answer());
	/* What cannot be loaded is said as ever. */
	return dlopen("no-such-plugin.so", RTLD_NOW) != NULL || !dlerror();
}
#endif
