# Run by cpack between installing into its folder and packing that: gives the documentation the form
# that Debian's policy asks for (compressed pages and changelogs, one file of licences).
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
set(doc ${share}/doc/runfs)

# Without name and time, so that the same input makes the same package.
function(compress file)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

compress(${share}/man/man1/runfs.1)
# The helper of mount(8) is the same program.
file(MAKE_DIRECTORY ${share}/man/man8)
file(CREATE_LINK ../man1/runfs.1.gz ${share}/man/man8/mount.fuse.runfs.8.gz SYMBOLIC)
file(CREATE_LINK ../man1/runfs.1.gz ${share}/man/man8/mount.runfs.8.gz SYMBOLIC)
file(RENAME ${doc}/CHANGELOG.md ${doc}/changelog)
compress(${doc}/changelog)
file(COPY ${CPACK_RUNFS_PACKAGING}/changelog.Debian ${CPACK_RUNFS_PACKAGING}/copyright
     DESTINATION ${doc})
compress(${doc}/changelog.Debian)
# The system has its text.
file(REMOVE ${doc}/LICENSE)
