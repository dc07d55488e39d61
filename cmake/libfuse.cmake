# Finds libfuse 3: the system's (3.14 or later), or the one below RUNFS_LIBFUSE. The code asks
# FUSE_VERSION for what 3.17 added.
if(RUNFS_LIBFUSE)
  set(ENV{PKG_CONFIG_PATH} "${RUNFS_LIBFUSE}/lib/pkgconfig:$ENV{PKG_CONFIG_PATH}")
endif()

# What pkg-config answered is cached; another prefix must ask again.
if(NOT RUNFS_LIBFUSE STREQUAL RUNFS_LIBFUSE_ASKED)
  get_cmake_property(cached CACHE_VARIABLES)
  foreach(name ${cached})
    if(name MATCHES "FUSE3_")
      unset(${name} CACHE)
    endif()
  endforeach()
  unset(__pkg_config_checked_FUSE3 CACHE)
endif()
pkg_check_modules(FUSE3 REQUIRED IMPORTED_TARGET fuse3>=3.14)
set(RUNFS_LIBFUSE_ASKED "${RUNFS_LIBFUSE}" CACHE INTERNAL "")
message(STATUS "libfuse ${FUSE3_VERSION}")
