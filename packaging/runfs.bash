# bash completion for runfs(1)                                            -*- shell-script -*-

_runfs_mount_options="cache_dir= cache_size= cache_reserve= config= layout=plain layout=runs layout=horovod layout=dbfs layout=ray
layout=adaptdl layout=torchx layout=tfos durability=cache
durability=store attr_timeout= entry_timeout= list_timeout= incomplete=hide incomplete=show
upload_interval= settle= late_window= store_timeout= ask_timeout=
mount_timeout= drain_timeout= upload_jobs= download_jobs= connections= part_size= list_memory= staging= upload=close
upload=rename upload=interval upload=never conflict=keep conflict=last interval= logs=
unit= unit_names= unit_done= unit_pointer= unit_idle= unit_max= locks= lock_ttl= expect= keep_last= del_locks allow_other
ro nonempty remount suid dev noexec acl noacl uid= gid= umask= fmask= dmask= passthrough=auto passthrough=off log_level=error log_level=warn log_level=info
log_level=debug endpoint= region= profile= path_style
no_sign_request request_payer=requester
sse= sse_kms_key_id= storage_class= ca_bundle= ca_file= state_prefix="

# The last of a comma-separated list is completed, what stands before it is kept.
_runfs_complete_options() {
    local before=""
    [[ $1 != *,* ]] || before=${1%,*},
    mapfile -t COMPREPLY < <(compgen -P "$before" -W "$_runfs_mount_options" -- "${1##*,}")
    compopt -o nospace
}

_runfs_complete_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

# Where something is mounted by runfs now.
_runfs_mountpoints() {
    awk '$3 == "fuse.runfs" {print $2}' /proc/self/mounts 2>/dev/null
}

_runfs() {
    local word=$2 previous=$3 command=${COMP_WORDS[1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _runfs_complete_words "mount umount status flush commit units fetch pin unpin evict lock locks verify url paths check recover help version --help --version" "$word"
        return
    fi
    # "=" ends a word for readline: the words around it belong to one option.
    if [ "$command" = mount ] && [[ $previous = -o || $previous = = ]]; then
        [ "$previous" = -o ] && _runfs_complete_options "$word" && return
    fi
    if [ "$command" = url ] && [ "$previous" = --as ]; then
        _runfs_complete_words "s3 s3a hdfs webhdfs file dbfs" "$word"
        return
    fi
    if [ "$command" = flush ] && [ "$previous" = --level ]; then
        _runfs_complete_words "store verified" "$word"
        return
    fi
    case $command:$word in
    mount:-*) _runfs_complete_words "-f -o --help" "$word" ;;
    mount:*) _runfs_complete_words "s3:// file:// mem:" "$word" ;;
    umount:-*) _runfs_complete_words "--timeout --help" "$word" ;;
    status:-*) _runfs_complete_words "--json --watch --files --help" "$word" ;;
    flush:-*) _runfs_complete_words "--timeout --staged --open --level --help" "$word" ;;
    commit:-*) _runfs_complete_words "--timeout --help" "$word" ;;
    units:-*) _runfs_complete_words "--json --adopt --drop --help" "$word" ;;
    verify:-*) _runfs_complete_words "--json --timeout --help" "$word" ;;
    recover:-*) _runfs_complete_words "--list --publish --export -o --help" "$word" ;;
    url:-*) _runfs_complete_words "--as --path --help" "$word" ;;
    lock:-*) _runfs_complete_words "--wait --refuse --help --" "$word" ;;
    locks:-*) _runfs_complete_words "--json --help" "$word" ;;
    paths:-*) _runfs_complete_words "--config --dataset --help" "$word" ;;
    check:-*) _runfs_complete_words "--key --expand --json --reach --same-as --help" "$word" ;;
    help:*) _runfs_complete_words "mount umount status flush commit units fetch pin unpin evict lock locks verify url paths check recover" "$word" ;;
    umount:* | status:*) _runfs_complete_words "$(_runfs_mountpoints)" "$word" ;;
    esac
}

# What it does not know (local paths) is completed as file names.
complete -o default -F _runfs runfs
