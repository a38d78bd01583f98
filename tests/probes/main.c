/* Runs the probes: probes ADDRESS DEAD-ADDRESS. See probe.h. */
#include "probe.h"

void probe_identifiers(void);
void probe_binding(void);
void probe_resolving(void);
void probe_names(void);
void probe_connecting(void);
void probe_ending(void);
void probe_datagrams(void);
void probe_synchronous(void);
void probe_verbs(void);
void probe_privileges(void);

int main(int count, char **words)
{
	if (count != 3) {
		fprintf(stderr, "usage: %s ADDRESS DEAD-ADDRESS\n", words[0]);
		return 2;
	}
	own = words[1];
	dead = words[2];
	probe_identifiers();
	probe_binding();
	probe_resolving();
	probe_names();
	probe_connecting();
	probe_ending();
	probe_datagrams();
	probe_synchronous();
	probe_verbs();
	probe_privileges();
	return 0;
}
