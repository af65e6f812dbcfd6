// Stands in for libcuda.so.1 of CUDA 11.4: all that the CUDA runtime asks of a driver before it refuses it.
extern "C" {
int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
int cuInit(unsigned) {
  return 0;
}
}
