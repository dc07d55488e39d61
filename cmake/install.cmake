# What `cmake --install` and the Debian package put where.
include(GNUInstallDirs)

configure_file(packaging/runfs.1.in ${PROJECT_BINARY_DIR}/packaging/runfs.1 @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/packaging/runfs.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES packaging/runfs.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME runfs)
install(FILES packaging/runfs@.service DESTINATION lib/systemd/system)
install(FILES packaging/example.conf packaging/example.json
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/runfs/examples)
install(FILES README.md LICENSE NOTICE CHANGELOG.md SECURITY.md
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/runfs)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/runfs)

# mount(8) looks for the helpers of `-t fuse.runfs` and `-t runfs` in sbin: the same program, which
# knows by its name that it was called that way.
install(CODE "
  set(sbin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_SBINDIR}\")
  file(MAKE_DIRECTORY \"\${sbin}\")
  file(CREATE_LINK ../${CMAKE_INSTALL_BINDIR}/runfs \"\${sbin}/mount.fuse.runfs\" SYMBOLIC)
  file(CREATE_LINK ../${CMAKE_INSTALL_BINDIR}/runfs \"\${sbin}/mount.runfs\" SYMBOLIC)")

# What Debian wants to know of a package: the licences of what is in the program, of libfuse only
# where it is linked statically, and the version of the package itself.
if("${FUSE3_LINK_LIBRARIES}" MATCHES "libfuse3\\.a")
  set(RUNFS_COPYRIGHT_LIBFUSE " and libfuse ${FUSE3_VERSION}, linked statically")
  configure_file(packaging/copyright-libfuse.in ${PROJECT_BINARY_DIR}/packaging/copyright-libfuse @ONLY)
  file(READ ${PROJECT_BINARY_DIR}/packaging/copyright-libfuse RUNFS_COPYRIGHT_STANZA)
endif()
configure_file(packaging/copyright.in ${PROJECT_BINARY_DIR}/packaging/copyright @ONLY)
configure_file(packaging/changelog.Debian.in ${PROJECT_BINARY_DIR}/packaging/changelog.Debian @ONLY)

set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/deb.cmake)
set(CPACK_RUNFS_PACKAGING ${PROJECT_BINARY_DIR}/packaging)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME runfs)
set(CPACK_PACKAGE_VENDOR "The runfs developers")
set(CPACK_PACKAGE_CONTACT "The runfs developers <runfs@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "mount remote checkpoint stores as a plain directory")
set(CPACK_PACKAGE_DESCRIPTION_FILE ${PROJECT_SOURCE_DIR}/packaging/description.txt)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "fuse3, ca-certificates")
include(CPack)
