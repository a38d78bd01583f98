/* Calls every function that takes a path, in and out of the private tree, from a constructor, threads, a fork and a signal
 * handler. Run with the preload and PUMICE_SYSFS naming a folder with the tree that tests/preload.rs makes. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define EXPECT(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
			exit(1); \
		} \
	} while (0)

#define CLASS "/sys/class/infiniband"
#define NODE_TYPE CLASS "/pumice0/node_type"
#define REAL "/sys/devices/virtual/infiniband/pumice0"

int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
int __xstat(int, const char *, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __fxstatat(int, int, const char *, struct stat *, int);
char *__realpath_chk(const char *, char *, size_t);
ssize_t __readlink_chk(const char *, char *, size_t, size_t);
ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);

static int early;

/* Before main, maybe before the preload's own constructor. */
__attribute__((constructor)) static void begin(void)
{
	early = access(NODE_TYPE, R_OK) == 0 && access("/dev/null", R_OK) == 0;
}

static void is_node_type(int fd)
{
	char text[16] = "";
	EXPECT(fd >= 0);
	EXPECT(read(fd, text, sizeof text) == 6);
	EXPECT(memcmp(text, "1: CA\n", 6) == 0);
	close(fd);
}

static void opening(void)
{
	is_node_type(open(NODE_TYPE, O_RDONLY));
	is_node_type(open64(NODE_TYPE, O_RDONLY | O_CLOEXEC));
	is_node_type(__open_2(NODE_TYPE, O_RDONLY));
	is_node_type(__open64_2(NODE_TYPE, O_RDONLY));
	is_node_type(openat(AT_FDCWD, NODE_TYPE, O_RDONLY));
	is_node_type(openat64(-1, NODE_TYPE, O_RDONLY));
	is_node_type(__openat_2(AT_FDCWD, NODE_TYPE, O_RDONLY));
	is_node_type(__openat64_2(AT_FDCWD, NODE_TYPE, O_RDONLY));
	is_node_type(open("//sys//class/infiniband/pumice0//node_type", O_RDONLY));
	is_node_type(open(REAL "/node_type", O_RDONLY));
	FILE *file = fopen(NODE_TYPE, "r");
	EXPECT(file);
	is_node_type(dup(fileno(file)));
	EXPECT((file = freopen(NODE_TYPE, "re", file)));
	is_node_type(dup(fileno(file)));
	fclose(file);
	/* Relative to a folder that was opened before. */
	int folder = open(CLASS, O_RDONLY | O_DIRECTORY);
	is_node_type(openat(folder, "pumice0/node_type", O_RDONLY));
	close(folder);
	/* The mode goes through. */
	unlink("made");
	int made = open("made", O_CREAT | O_WRONLY | O_EXCL, 0640);
	struct stat about;
	EXPECT(made >= 0 && fstat(made, &about) == 0 && (about.st_mode & 0777) == 0640);
	close(made);
	unlink("made");
	char text[64];
	EXPECT(chdir(CLASS "/pumice0") == 0);
	is_node_type(open("node_type", O_RDONLY));
	EXPECT(getcwd(text, sizeof text) || errno == ERANGE);
	EXPECT(chdir("/") == 0);
	int watch = inotify_init1(IN_CLOEXEC);
	EXPECT(inotify_add_watch(watch, NODE_TYPE, IN_MODIFY) >= 0);
	close(watch);
}

static void asking(void)
{
	struct stat about;
	struct statx more;
	struct statfs system;
	struct statvfs volume;
	EXPECT(access(NODE_TYPE, R_OK) == 0);
	EXPECT(access(CLASS "/none", F_OK) == -1 && errno == ENOENT);
	EXPECT(eaccess(NODE_TYPE, R_OK) == 0 && euidaccess(NODE_TYPE, R_OK) == 0);
	EXPECT(faccessat(AT_FDCWD, NODE_TYPE, R_OK, AT_EACCESS) == 0);
	EXPECT(stat(NODE_TYPE, &about) == 0 && S_ISREG(about.st_mode));
	EXPECT(stat(CLASS "/pumice0", &about) == 0 && S_ISDIR(about.st_mode));
	EXPECT(lstat(CLASS "/pumice0", &about) == 0 && S_ISLNK(about.st_mode));
	EXPECT(fstatat(AT_FDCWD, CLASS "/pumice0", &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(about.st_mode));
	EXPECT(statx(AT_FDCWD, NODE_TYPE, 0, STATX_SIZE, &more) == 0 && more.stx_size == 6);
	EXPECT(stat("/dev/infiniband/uverbs0", &about) == 0 && S_ISCHR(about.st_mode));
	EXPECT(access("/dev/infiniband/uverbs0", R_OK | W_OK) == 0);
	EXPECT(__xstat(1, NODE_TYPE, &about) == 0 && about.st_size == 6);
	EXPECT(__lxstat(1, NODE_TYPE, &about) == 0 && about.st_size == 6);
	EXPECT(__fxstatat(1, AT_FDCWD, NODE_TYPE, &about, 0) == 0 && about.st_size == 6);
	EXPECT(statfs(NODE_TYPE, &system) == 0 && statvfs(NODE_TYPE, &volume) == 0);
	EXPECT(pathconf(NODE_TYPE, _PC_NAME_MAX) > 0);
	EXPECT(getxattr(NODE_TYPE, "user.none", NULL, 0) == -1 && errno != ENOENT);
	EXPECT(lgetxattr(NODE_TYPE, "user.none", NULL, 0) == -1 && errno != ENOENT);
	EXPECT(listxattr(NODE_TYPE, NULL, 0) >= 0 || errno != ENOENT);
	EXPECT(llistxattr(NODE_TYPE, NULL, 0) >= 0 || errno != ENOENT);
	/* Not ours. */
	EXPECT(stat("/dev", &about) == 0 && stat("/sys/class", &about) == 0);
	EXPECT(stat("/dev/infiniband_not", &about) == -1 && errno == ENOENT);
	EXPECT(stat("", &about) == -1 && errno == ENOENT);
}

static void links(void)
{
	char text[PATH_MAX];
	const char target[] = "../../devices/virtual/infiniband/pumice0";
	EXPECT(readlink(CLASS "/pumice0", text, sizeof text) == sizeof target - 1 && !memcmp(text, target, sizeof target - 1));
	EXPECT(readlinkat(AT_FDCWD, CLASS "/pumice0", text, sizeof text) == sizeof target - 1);
	EXPECT(__readlink_chk(CLASS "/pumice0", text, sizeof text, sizeof text) == sizeof target - 1);
	EXPECT(__readlinkat_chk(AT_FDCWD, CLASS "/pumice0", text, sizeof text, sizeof text) == sizeof target - 1);
	EXPECT(realpath(CLASS "/pumice0", text) == text && !strcmp(text, REAL));
	EXPECT(__realpath_chk(CLASS "/pumice0/node_type", text, sizeof text) && !strcmp(text, REAL "/node_type"));
	char *found = realpath(CLASS "/pumice0/.", NULL);
	EXPECT(found && !strcmp(found, REAL));
	free(found);
	found = canonicalize_file_name(CLASS);
	EXPECT(found && !strcmp(found, CLASS));
	free(found);
	EXPECT(!realpath(CLASS "/none", text) && errno == ENOENT);
	EXPECT(realpath("/dev/null", text) && !strcmp(text, "/dev/null"));
}

static int visited;

static int visit(const char *path, const struct stat *about, int kind)
{
	(void)about, (void)kind;
	visited += strstr(path, "node_type") != NULL;
	return 0;
}

static int visit_more(const char *path, const struct stat *about, int kind, struct FTW *where)
{
	(void)where;
	return visit(path, about, kind);
}

static void listing(void)
{
	DIR *folder = opendir(CLASS);
	EXPECT(folder);
	int found = 0;
	for (struct dirent *entry; (entry = readdir(folder));)
		found += !strcmp(entry->d_name, "pumice0");
	EXPECT(found == 1);
	closedir(folder);
	struct dirent **list;
	EXPECT(scandir(CLASS, &list, NULL, alphasort) == 3 && !strcmp(list[2]->d_name, "pumice0"));
	EXPECT(scandirat(AT_FDCWD, CLASS, &list, NULL, alphasort) == 3);
	EXPECT(ftw(REAL, visit, 8) == 0 && visited == 1);
	EXPECT(nftw(REAL, visit_more, 8, FTW_PHYS) == 0 && visited == 2);
	glob_t paths = {.gl_offs = 2};
	EXPECT(glob(CLASS "/*/node_*", GLOB_DOOFFS, NULL, &paths) == 0 && paths.gl_pathc == 1);
	EXPECT(!paths.gl_pathv[0] && !paths.gl_pathv[1] && !strcmp(paths.gl_pathv[2], NODE_TYPE));
	EXPECT(glob("/dev/nul[l]", GLOB_DOOFFS | GLOB_APPEND, NULL, &paths) == 0 && paths.gl_pathc == 2);
	EXPECT(!strcmp(paths.gl_pathv[2], NODE_TYPE) && !strcmp(paths.gl_pathv[3], "/dev/null"));
	globfree(&paths);
	EXPECT(glob(CLASS "/x*", 0, NULL, &paths) == GLOB_NOMATCH);
	EXPECT(glob(CLASS "/x*", GLOB_NOCHECK, NULL, &paths) == 0 && !strcmp(paths.gl_pathv[0], CLASS "/x*"));
	globfree(&paths);
}

static void *many_times(void *unused)
{
	for (int i = 0; i < 1000; i++) {
		is_node_type(open(NODE_TYPE, O_RDONLY));
		EXPECT(access("/dev/null", F_OK) == 0);
	}
	return unused;
}

static volatile sig_atomic_t read_in_handler;

static void on_signal(int number)
{
	(void)number;
	char text[6];
	int fd = open(NODE_TYPE, O_RDONLY);
	read_in_handler = read(fd, text, 6) == 6 && text[0] == '1';
	close(fd);
}

int main(void)
{
	EXPECT(early);
	/* The program may do what it wants with its environment. */
	unsetenv("PUMICE_SYSFS");
	opening();
	asking();
	links();
	listing();

	char long_path[4000];
	memset(long_path, 'x', sizeof long_path);
	memcpy(long_path, CLASS "/", sizeof CLASS);
	long_path[sizeof long_path - 1] = 0;
	EXPECT(open(long_path, O_RDONLY) == -1 && errno == ENAMETOOLONG);
	EXPECT(!opendir(long_path) && errno == ENAMETOOLONG);

	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		EXPECT(pthread_create(&threads[i], NULL, many_times, NULL) == 0);
	/* Forked while the threads are in the middle of it. */
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		EXPECT(child >= 0);
		if (child == 0) {
			is_node_type(open(NODE_TYPE, O_RDONLY));
			_exit(0);
		}
		int status;
		EXPECT(waitpid(child, &status, 0) == child && status == 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	signal(SIGUSR1, on_signal);
	raise(SIGUSR1);
	EXPECT(read_in_handler);
	puts("ok");
	return 0;
}
