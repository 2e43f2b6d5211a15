#pragma once

// Functions of OpenMP and MKL, which libtorch brings along; null where it was built without them.
extern "C" {
__attribute__((weak)) int omp_get_max_threads();
__attribute__((weak)) void omp_set_num_threads(int count);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int count);
}

namespace thunder::runtime {

/// How many threads the kernels that this thread calls may use: one, or all. MKL and oneDNN wake the others for the
/// smallest matrices, which takes longer than the matmul. All again when it dies.
class ThreadWidth {
 public:
  ThreadWidth() = default;
  ~ThreadWidth() { narrow(false); }
  ThreadWidth(const ThreadWidth&) = delete;
  ThreadWidth& operator=(const ThreadWidth&) = delete;

  void narrow(bool to_one) {
    if (to_one == is_one_ || omp_set_num_threads == nullptr) return;
    is_one_ = to_one;
    if (to_one) {
      openmp_ = omp_get_max_threads();
      omp_set_num_threads(1);
      if (MKL_Set_Num_Threads_Local != nullptr) mkl_ = MKL_Set_Num_Threads_Local(1);
    } else {
      omp_set_num_threads(openmp_);
      if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl_);
    }
  }

 private:
  bool is_one_ = false;
  int openmp_ = 1;
  int mkl_ = 0;  ///< zero: as many as the process may use
};

}  // namespace thunder::runtime
