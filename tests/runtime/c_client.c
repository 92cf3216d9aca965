/* jitune.h from C99, with the stand-in driver:   runtime_c_client WORKER   Prints `c: all right` or what is wrong. */
#include <cuda.h>
#include <dlfcn.h>
#include <jitune/jitune.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCount = 4096 };

static const char kKernel[] =
    "format = 1\n"
    "name = \"scale\"\n"
    "entry = \"scale<{BLOCK}>\"\n"
    "source = \"c_client_scale.cu\"\n"
    "problem = [\"n\", \"T\"]\n"
    "[params]\nBLOCK = [64, 128]\n"
    "[launch]\ngrid = [\"ceil_div(n, BLOCK)\"]\nblock = [\"BLOCK\"]\n"
    "[[args]]\nout = \"y\"\ntype = \"float\"\ncount = \"n\"\n"
    "[[args]]\nin = \"x\"\ntype = \"float\"\ncount = \"n\"\n"
    "[[args]]\nscalar = \"a\"\ntype = \"float\"\nvalue = \"2.0\"\n"
    "[[args]]\nscalar = \"n\"\ntype = \"int\"\nvalue = \"n\"\n"
    "[[defaults]]\nconfig = { BLOCK = 64 }\n";
static const char kSource[] =
    "template <int BLOCK> __global__ void scale(float* y, const float* x, float a, int n)\n"
    "{ int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) y[i] = a * x[i]; }\n";

static int events = 0;

static void count_events(void* user, int level, const char* code, const char* kernel, const char* text) {
  (void)kernel;
  if (level >= 0 && code[0] != 0 && text[0] != 0) ++*(int*)user;
}

static void expect(int good, const char* what) {
  if (good) return;
  printf("wrong: %s; the last error is: %s\n", what, jitune_last_error());
  exit(1);
}

static void write_text(const char* path, const char* text) {
  FILE* file = fopen(path, "w");
  expect(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0, path);
}

static void* library;

static void* entry(const char* name) {
  void* address = dlsym(library, name);
  expect(address != NULL, name);
  return address;
}

/* A context and two buffers by the driver itself. */
static void make_buffers(CUdeviceptr* y, CUdeviceptr* x, const float* host) {
  CUdevice device = 0;
  CUcontext context = NULL;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  expect(library != NULL, "dlopen libcuda.so.1");
  expect(((CUresult(*)(unsigned))entry("cuInit"))(0) == CUDA_SUCCESS, "cuInit");
  expect(((CUresult(*)(CUdevice*, int))entry("cuDeviceGet"))(&device, 0) == CUDA_SUCCESS, "cuDeviceGet");
  expect(((CUresult(*)(CUcontext*, CUdevice))entry("cuDevicePrimaryCtxRetain"))(&context, device) == CUDA_SUCCESS,
         "cuDevicePrimaryCtxRetain");
  expect(((CUresult(*)(CUcontext))entry("cuCtxSetCurrent"))(context) == CUDA_SUCCESS, "cuCtxSetCurrent");
  CUresult (*allocate)(CUdeviceptr*, size_t) = (CUresult(*)(CUdeviceptr*, size_t))entry("cuMemAlloc_v2");
  expect(allocate(y, kCount * sizeof(float)) == CUDA_SUCCESS && allocate(x, kCount * sizeof(float)) == CUDA_SUCCESS,
         "cuMemAlloc");
  expect(((CUresult(*)(CUdeviceptr, const void*, size_t))entry("cuMemcpyHtoD_v2"))(*x, host, kCount * sizeof(float)) ==
             CUDA_SUCCESS,
         "cuMemcpyHtoD");
}

int main(int argc, char** argv) {
  static float host[kCount];
  CUdeviceptr y = 0, x = 0;
  float a = 2;
  int i, n = kCount;
  const void* arguments[4];
  const char* outcome = "";
  jitune_options options;
  jitune_statistics did;
  jitune_choice choice;
  jitune_tuner* tuner = NULL;
  jitune_kernel* kernel = NULL;
  jitune_problem* problem = NULL;

  for (i = 0; i < kCount; ++i) host[i] = (float)i;
  make_buffers(&y, &x, host);
  write_text("c_client_scale.toml", kKernel);
  write_text("c_client_scale.cu", kSource);

  memset(&options, 0, sizeof options);
  expect(jitune_tuner_new(&options, &tuner) == JITUNE_BAD_OPTIONS, "options without their size are refused");
  options.struct_bytes = sizeof options;
  options.track = "sideways";
  expect(jitune_tuner_new(&options, &tuner) == JITUNE_BAD_OPTIONS && strstr(jitune_last_error(), "sideways") != NULL,
         "an unknown track is named");
  options.track = "tune";
  options.database = "off";
  options.worker = argc > 1 ? argv[1] : NULL;
  options.compile_workers = 2;
  options.first_call_budget_ms = 60000;
  options.log = count_events;
  options.log_user = &events;
  expect(jitune_tuner_new(&options, &tuner) == JITUNE_OK, "jitune_tuner_new");
  expect(jitune_kernel_load(tuner, "absent.toml", NULL, &kernel) == JITUNE_BAD_DEFINITION, "an absent file");
  expect(jitune_kernel_load(tuner, "c_client_scale.toml", "scale", &kernel) == JITUNE_OK, "jitune_kernel_load");
  expect(jitune_problem_new(kernel, &problem) == JITUNE_OK, "jitune_problem_new");
  expect(jitune_problem_set_int(problem, "m", 1) == JITUNE_BAD_PROBLEM && strstr(jitune_last_error(), "'m'") != NULL,
         "an unknown problem value is named");
  expect(strcmp(jitune_status_name(JITUNE_BAD_PROBLEM), "bad_problem") == 0, "jitune_status_name");
  expect(jitune_problem_set_int(problem, "n", n) == JITUNE_OK, "jitune_problem_set_int");
  expect(jitune_problem_set_word(problem, "T", "float") == JITUNE_OK, "jitune_problem_set_word");
  arguments[0] = &y;
  arguments[1] = &x;
  arguments[2] = &a;
  arguments[3] = &n;
  expect(jitune_launch(kernel, NULL, problem, arguments, 3) == JITUNE_BAD_ARGUMENTS, "too few arguments");
  expect(jitune_launch(kernel, NULL, problem, arguments, 4) == JITUNE_OK, "jitune_launch");
  memset(host, 0, sizeof host);
  expect(((CUresult(*)(void*, CUdeviceptr, size_t))entry("cuMemcpyDtoH_v2"))(host, y, sizeof host) == CUDA_SUCCESS,
         "cuMemcpyDtoH");
  for (i = 0; i < kCount; ++i) expect(host[i] == 2 * (float)i, "the result");

  choice.struct_bytes = sizeof choice;
  expect(jitune_get_choice(kernel, problem, &choice) == JITUNE_OK, "jitune_get_choice");
  expect(strcmp(choice.source, "tuned") == 0 && strstr(choice.config, "BLOCK") != NULL && choice.time_us > 0,
         choice.why);
  did.struct_bytes = sizeof did;
  expect(jitune_tuner_statistics(tuner, &did) == JITUNE_OK && did.trials == 2 && did.launches == 1, "statistics");
  expect(jitune_problem_set_int(problem, "n", n / 2) == JITUNE_OK, "another problem");
  expect(jitune_tune(tuner, kernel, problem, 0, 0, &outcome) == JITUNE_OK, "jitune_tune");
  expect(strcmp(outcome, "won") == 0 || strcmp(outcome, "default_kept") == 0, outcome);
  expect(jitune_problem_set_track(problem, "lookup") == JITUNE_OK && jitune_prepare(kernel, problem, NULL) == JITUNE_OK,
         "jitune_prepare");
  jitune_tuner_stop(tuner);
  jitune_problem_free(problem);
  jitune_kernel_free(kernel);
  jitune_tuner_free(tuner);
  jitune_tuner_free(NULL);
  expect(events > 0, "events reached the hook");
  printf("c: all right\n");
  return 0;
}
