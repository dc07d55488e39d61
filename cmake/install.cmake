# What `cmake --install` and the Debian package put where.
include(GNUInstallDirs)

configure_file(packaging/runfs.1.in ${PROJECT_BINARY_DIR}/packaging/runfs.1 @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/packaging/runfs.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES packaging/runfs.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME runfs)
install(FILES packaging/runfs@.service DESTINATION lib/systemd/system)
install(FILES packaging/example.conf packaging/example.json
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/runfs/examples)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/runfs)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/runfs)

# mount(8) looks for the helper of `-t fuse.runfs` in sbin: the same program, which knows by its
# name that it was called that way.
install(CODE "
  set(sbin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_SBINDIR}\")
  file(MAKE_DIRECTORY \"\${sbin}\")
  file(CREATE_LINK ../${CMAKE_INSTALL_BINDIR}/runfs \"\${sbin}/mount.fuse.runfs\" SYMBOLIC)")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME runfs)
set(CPACK_PACKAGE_VENDOR "The runfs developers")
set(CPACK_PACKAGE_CONTACT "The runfs developers <runfs@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "mount remote checkpoint stores as a plain directory")
set(CPACK_PACKAGE_DESCRIPTION_FILE ${PROJECT_SOURCE_DIR}/packaging/description.txt)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "fuse3, ca-certificates")
include(CPack)
