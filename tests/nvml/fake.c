/* A library that answers as NVML does, for GPUs that are not there: through it the real binding runs on any machine.

   Some functions answer NOT_SUPPORTED or NO_PERMISSION, as on real boards and in containers; those that are missing
   here are missing in drivers older than the binding. The environment changes the answers:
     FAKE_NVML_DRIVER=none   no driver is loaded          FAKE_NVML_REASONS=0x48   clock event reasons
     FAKE_NVML_USED=N        bytes of memory in use       FAKE_NVML_PROCESSES=N    processes that compute
     FAKE_NVML_TEMPERATURE=N  degrees Celsius             FAKE_NVML_GPUS=N         how many GPUs, 1 to 4
   Power, energy, violations and the SM clock follow the clock of the machine. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, SMALL = 7, NO_DRIVER = 9 };
typedef unsigned int uint;
typedef unsigned long long ull;

static const char UUIDS[4][41] = {"GPU-11111111-2222-3333-4444-555555555555", "GPU-11111111-2222-3333-4444-555555555556",
                                  "GPU-11111111-2222-3333-4444-555555555557", "GPU-11111111-2222-3333-4444-555555555558"};

static ull setting(const char *name, ull otherwise) {
  const char *told = getenv(name);
  return told ? strtoull(told, 0, 0) : otherwise;
}
static ull now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}
static int number(uint *to, uint value) { *to = value; return OK; }
static int text(char *to, uint size, const char *value) {
  if (strlen(value) >= size) return SMALL;
  strcpy(to, value);
  return OK;
}

#define REFUSES(name, code) int name(void) { return code; }
#define SAYS(name, value) int name(void *d, uint *to) { return number(to, value); }
#define NAMED(name, value) int name(void *d, char *to, uint size) { return text(to, size, value); }
#define PAIR(name, a, b) int name(void *d, uint *x, uint *y) { *y = b; return number(x, a); }
#define CLOCK(name, sm, memory) int name(void *d, uint kind, uint *to) { return number(to, kind == 2 ? memory : sm); }

int nvmlInitWithFlags(uint flags) {
  const char *driver = getenv("FAKE_NVML_DRIVER");
  return driver && !strcmp(driver, "none") ? NO_DRIVER : OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return "an error that the binding does not know"; }
int nvmlSystemGetDriverVersion(char *to, uint size) { return text(to, size, "570.00.1"); }
int nvmlSystemGetNVMLVersion(char *to, uint size) { return text(to, size, "12.570.00"); }
int nvmlSystemGetCudaDriverVersion_v2(int *to) { *to = 12080; return OK; }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
/* A handle is the GPU's UUID. */
static uint count(void) { return setting("FAKE_NVML_GPUS", 1); }
int nvmlDeviceGetCount_v2(uint *to) { return number(to, count()); }
int nvmlDeviceGetHandleByIndex_v2(uint index, void **d) {
  if (index >= count()) return INVALID;
  *d = (void *)UUIDS[index];
  return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **d) {
  for (uint index = 0; index < count(); index++)
    if (!strcmp(uuid, UUIDS[index])) return nvmlDeviceGetHandleByIndex_v2(index, d);
  return NOT_FOUND;
}

NAMED(nvmlDeviceGetName, "NVIDIA Fake")
NAMED(nvmlDeviceGetUUID, d)
NAMED(nvmlDeviceGetBoardPartNumber, "900-00000-0000-000")
REFUSES(nvmlDeviceGetVbiosVersion, NO_PERMISSION)
SAYS(nvmlDeviceGetArchitecture, 9)
SAYS(nvmlDeviceGetBrand, 14)
PAIR(nvmlDeviceGetCudaComputeCapability, 9, 0)
SAYS(nvmlDeviceGetNumGpuCores, 16896)
SAYS(nvmlDeviceGetMemoryBusWidth, 6144)
PAIR(nvmlDeviceGetMigMode, 0, 0)
REFUSES(nvmlDeviceGetAttributes_v2, NOT_SUPPORTED)
SAYS(nvmlDeviceGetEnforcedPowerLimit, 700000)
SAYS(nvmlDeviceGetPowerManagementDefaultLimit, 700000)
CLOCK(nvmlDeviceGetMaxClockInfo, 1980, 3201)
PAIR(nvmlDeviceGetEccMode, 1, 1)
SAYS(nvmlDeviceGetPersistenceMode, 1)
int nvmlDeviceGetVirtualizationMode(void *d, uint *to) { return number(to, 0); }

struct memory { ull total, free, used; };
int nvmlDeviceGetMemoryInfo(void *d, struct memory *to) {
  to->total = 150ull << 30, to->used = setting("FAKE_NVML_USED", 600ull << 20), to->free = to->total - to->used;
  return OK;
}

int nvmlDeviceGetClockInfo(void *d, uint kind, uint *to) {
  return number(to, kind == 2 ? 3201 : 1500 + now_ms() / 10 % 400);
}
int nvmlDeviceGetTemperature(void *d, uint sensor, uint *to) { return number(to, setting("FAKE_NVML_TEMPERATURE", 41)); }
int nvmlDeviceGetPowerUsage(void *d, uint *to) { return number(to, 300000 + now_ms() % 1000 * 100); }
int nvmlDeviceGetTotalEnergyConsumption(void *d, ull *to) { *to = 350 * now_ms(); return OK; }
/* not known by its newer name: a driver before 535 */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, ull *to) { *to = setting("FAKE_NVML_REASONS", 4); return OK; }
struct violation { ull reference, time; };
int nvmlDeviceGetViolationStatus(void *d, uint policy, struct violation *to) {
  to->reference = now_ms() * 1000, to->time = policy ? 0 : now_ms() * 1000;
  return policy == 3 ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, uint *count, char *to) {
  uint there = setting("FAKE_NVML_PROCESSES", 0), room = *count;
  *count = there;
  if (room >= there && to) memset(to, 0, there * 24);
  return !there || (to && room >= there) ? OK : SMALL;
}
