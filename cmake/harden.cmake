# Flags that make an exploit of a memory error harder; needs an optimising build type. What the
# compiler or the processor does not have is left out.
include(CheckCCompilerFlag)
include(CheckPIESupported)

set(CMAKE_POSITION_INDEPENDENT_CODE ON)
check_pie_supported(LANGUAGES C)
foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection)
  string(MAKE_C_IDENTIFIER "have${flag}" have)
  check_c_compiler_flag(${flag} ${have})
  if(${have})
    add_compile_options(${flag})
  endif()
endforeach()
add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -Wformat=2)
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
