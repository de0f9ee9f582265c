; The functions of CUDA's libdevice that `cubecl-llvm` 0.11.3 links into kernels
; (`NO_LIBCALL` of src/nvptx/libdevice.rs), without their bodies: kernels are compiled for a driver
; that runs none. It stands in where no CUDA toolkit is installed.
;
;   llvm-as libdevice.ll -o libdevice.10.bc        (LLVM 15)
;
; The layout is that of the kernels on NVPTX (LLVM 23.1), so that the linker does not warn of another.

target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"

define float @__nv_sinf(float %x) {
  ret float %x
}

define double @__nv_sin(double %x) {
  ret double %x
}

define float @__nv_cosf(float %x) {
  ret float %x
}

define double @__nv_cos(double %x) {
  ret double %x
}

define float @__nv_tanf(float %x) {
  ret float %x
}

define double @__nv_tan(double %x) {
  ret double %x
}

define float @__nv_asinf(float %x) {
  ret float %x
}

define double @__nv_asin(double %x) {
  ret double %x
}

define float @__nv_acosf(float %x) {
  ret float %x
}

define double @__nv_acos(double %x) {
  ret double %x
}

define float @__nv_atanf(float %x) {
  ret float %x
}

define double @__nv_atan(double %x) {
  ret double %x
}

define float @__nv_sinhf(float %x) {
  ret float %x
}

define double @__nv_sinh(double %x) {
  ret double %x
}

define float @__nv_coshf(float %x) {
  ret float %x
}

define double @__nv_cosh(double %x) {
  ret double %x
}

define float @__nv_tanhf(float %x) {
  ret float %x
}

define double @__nv_tanh(double %x) {
  ret double %x
}

define float @__nv_expf(float %x) {
  ret float %x
}

define double @__nv_exp(double %x) {
  ret double %x
}

define float @__nv_exp2f(float %x) {
  ret float %x
}

define double @__nv_exp2(double %x) {
  ret double %x
}

define float @__nv_exp10f(float %x) {
  ret float %x
}

define double @__nv_exp10(double %x) {
  ret double %x
}

define float @__nv_logf(float %x) {
  ret float %x
}

define double @__nv_log(double %x) {
  ret double %x
}

define float @__nv_log2f(float %x) {
  ret float %x
}

define double @__nv_log2(double %x) {
  ret double %x
}

define float @__nv_log10f(float %x) {
  ret float %x
}

define double @__nv_log10(double %x) {
  ret double %x
}

define float @__nv_cbrtf(float %x) {
  ret float %x
}

define double @__nv_cbrt(double %x) {
  ret double %x
}

define float @__nv_erff(float %x) {
  ret float %x
}

define double @__nv_erf(double %x) {
  ret double %x
}

define float @__nv_atan2f(float %x, float %y) {
  ret float %x
}

define double @__nv_atan2(double %x, double %y) {
  ret double %x
}

define float @__nv_powf(float %x, float %y) {
  ret float %x
}

define double @__nv_pow(double %x, double %y) {
  ret double %x
}
