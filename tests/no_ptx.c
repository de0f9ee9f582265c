/* Takes the place of LLVM's passes and of its output in a program that measures on the counting driver alone:
 * "Without a GPU" in docs/verify.md says how to link it. That driver runs nothing, and of the PTX of a kernel it reads
 * only whether the kernel uses matrix units (estimator/counting-driver/src/kernel.rs), so that is all that is written
 * here. Never link it into a program that trains on a GPU. */
#include <stddef.h>
#include <string.h>

/* LLVM's C interface (llvm-c/Core.h); each type is a pointer. */
typedef struct Opaque *Pointer;
extern Pointer LLVMCreateMemoryBufferWithMemoryRangeCopy(const char *, size_t, const char *);
extern Pointer LLVMGetFirstFunction(Pointer);
extern Pointer LLVMGetNextFunction(Pointer);
extern Pointer LLVMGetFirstUse(Pointer);
extern const char *LLVMGetValueName2(Pointer, size_t *);

/* No error. */
Pointer __wrap_LLVMRunPasses(Pointer module, const char *passes, Pointer machine, Pointer options) {
  return NULL;
}

int __wrap_LLVMTargetMachineEmitToMemoryBuffer(Pointer machine, Pointer module, int kind, char **error,
                                               Pointer *output) {
  const char *text = "// no code\n";
  for (Pointer function = LLVMGetFirstFunction(module); function; function = LLVMGetNextFunction(function)) {
    size_t length;
    const char *name = LLVMGetValueName2(function, &length);
    /* llvm.nvvm.wmma.*, llvm.nvvm.mma.*: their instructions are wmma.*, mma.*. */
    if (!strncmp(name, "llvm.nvvm.", 10) && strstr(name, "mma.") && LLVMGetFirstUse(function))
      text = "// mma.\n";
  }
  *output = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "ptx");
  return 0;
}
