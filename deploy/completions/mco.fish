# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_mco_global_optspecs
    string join \n log= log-json no-color= h/help V/version
end

function __fish_mco_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_mco_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_mco_using_subcommand
    set -l cmd (__fish_mco_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c mco -n "__fish_mco_needs_command" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_needs_command" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_needs_command" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_needs_command" -s V -l version -d 'Print version'
complete -c mco -n "__fish_mco_needs_command" -f -a "install" -d 'Install namespace, CRDs, ControllerConfig and pools in a cluster'
complete -c mco -n "__fish_mco_needs_command" -f -a "uninstall" -d 'Remove everything that was installed; hosts keep their files'
complete -c mco -n "__fish_mco_needs_command" -f -a "status" -d 'Show pools and nodes: who waits for what, and why'
complete -c mco -n "__fish_mco_needs_command" -f -a "dashboard" -d 'Serve a page on this computer that shows pools and nodes live'
complete -c mco -n "__fish_mco_needs_command" -f -a "plan" -d 'Show what the controller does next, or what a change would do to the nodes; writes nothing'
complete -c mco -n "__fish_mco_needs_command" -f -a "pause" -d 'Pause pools: their nodes get no new configs'
complete -c mco -n "__fish_mco_needs_command" -f -a "resume" -d 'Resume paused pools'
complete -c mco -n "__fish_mco_needs_command" -f -a "approve" -d 'Approve the wave of a pool that waits for an approval'
complete -c mco -n "__fish_mco_needs_command" -f -a "history" -d 'Show the history of a pool\'s rendered configs: when, what changed, and who changed it'
complete -c mco -n "__fish_mco_needs_command" -f -a "undo" -d 'Roll a pool back to an earlier config, until its MachineConfigs are corrected'
complete -c mco -n "__fish_mco_needs_command" -f -a "retry" -d 'Make nodes retry at once what failed'
complete -c mco -n "__fish_mco_needs_command" -f -a "explain" -d 'Show which MachineConfig set a file, unit or argument of a pool, and which were overridden'
complete -c mco -n "__fish_mco_needs_command" -f -a "render" -d 'Render manifests without a cluster, or show what they would change'
complete -c mco -n "__fish_mco_needs_command" -f -a "bundle" -d 'Collect what a bug report needs in one archive, without secrets'
complete -c mco -n "__fish_mco_needs_command" -f -a "lint" -d 'Check manifests: each finding with its place and remedy'
complete -c mco -n "__fish_mco_needs_command" -f -a "image" -d 'OS images: inspect one, or build a pool\'s own on this computer'
complete -c mco -n "__fish_mco_needs_command" -f -a "controller" -d 'The controller: renders configs, rolls them out, drains nodes'
complete -c mco -n "__fish_mco_needs_command" -f -a "daemon" -d 'The node agent: applies configs to this host'
complete -c mco -n "__fish_mco_needs_command" -f -a "server" -d 'The config server: serves booting machines their Ignition config'
complete -c mco -n "__fish_mco_needs_command" -f -a "operator" -d 'The operator: installs the other parts and keeps them as the settings say'
complete -c mco -n "__fish_mco_needs_command" -f -a "token" -d 'Boot tokens: which machines may fetch a pool\'s config'
complete -c mco -n "__fish_mco_needs_command" -f -a "pointer" -d 'Print the pointer config that a machine is provisioned with: it makes the machine fetch its config from the config server'
complete -c mco -n "__fish_mco_needs_command" -f -a "completion" -d 'Print a shell completion script'
complete -c mco -n "__fish_mco_using_subcommand install" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand install" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand install" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand install" -l pool -d 'A pool to create; may be given several times [default: master and worker; with --image those of the settings]' -r
complete -c mco -n "__fish_mco_using_subcommand install" -l cluster-dns-ip -d 'The address of the cluster\'s DNS service [default: that of the cluster\'s DNS Service in kube-system, else 10.96.0.10]' -r
complete -c mco -n "__fish_mco_using_subcommand install" -l image -d 'Run the operator as pods of this image; it installs and keeps everything else, as MachineConfigOperator cluster says [default: all parts run elsewhere]' -r
complete -c mco -n "__fish_mco_using_subcommand install" -l timeout -d 'With --image: how long to wait until everything runs' -r
complete -c mco -n "__fish_mco_using_subcommand install" -l proxy-protocol-from -d 'With --image: a load balancer in front of the config server that speaks PROXY protocol, version 2; may be given several times; `none` removes all; without this option the existing ones stay' -r
complete -c mco -n "__fish_mco_using_subcommand install" -l api-server-url -d 'The API server\'s URL, as machines reach it [default: from the kubeconfig, unless that is a loopback address]' -r
complete -c mco -n "__fish_mco_using_subcommand install" -l api-server-ca -d 'The CA that the API server\'s clients trust, PEM [default: the kubeconfig\'s]' -r -F
complete -c mco -n "__fish_mco_using_subcommand install" -l daemon-image -d 'Run the node agents as pods of this image [default: with --image pods of that image, or what the settings say; without it services of their hosts]' -r
complete -c mco -n "__fish_mco_using_subcommand install" -s o -l output -d 'With --dry-run: how to print the objects' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand install" -l output-dir -d 'With --dry-run: write the objects into this folder for kubectl, with the CRDs in a separate file' -r -F
complete -c mco -n "__fish_mco_using_subcommand install" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand install" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand install" -l no-wait -d 'With --image: do not wait until everything runs'
complete -c mco -n "__fish_mco_using_subcommand install" -l take-over -d 'Install on a cluster whose objects another program manages, and take them over from it'
complete -c mco -n "__fish_mco_using_subcommand install" -l allow-not-upgradeable -d 'With --image: upgrade although the installation says that it must not be upgraded now (its condition Upgradeable)'
complete -c mco -n "__fish_mco_using_subcommand install" -l require-token -d 'With --image: the config server gives configs only to machines with a boot token [default for a new installation; an existing one stays as it is]'
complete -c mco -n "__fish_mco_using_subcommand install" -l open -d 'With --image: the config server serves configs to anyone who can reach it, over plain HTTP (22624) too, as OpenShift\'s does'
complete -c mco -n "__fish_mco_using_subcommand install" -l agents-of-hosts -d 'With --image: the node agents are services of their hosts, from a package or an image of the host'
complete -c mco -n "__fish_mco_using_subcommand install" -l openshift-config-crds -d 'Also install the CRDs of OpenShift\'s config and operator kinds, which are read if they exist'
complete -c mco -n "__fish_mco_using_subcommand install" -l dry-run -d 'Print what would be done, and do nothing'
complete -c mco -n "__fish_mco_using_subcommand install" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand install" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l restore-timeout -d 'With --restore-hosts: how long one node may take, like 30m' -r
complete -c mco -n "__fish_mco_using_subcommand uninstall" -s o -l output -d 'With --dry-run: how to print it' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand uninstall" -s y -l yes -d 'Do not ask for confirmation'
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l force -d 'Remove everything even while nodes are being updated, if nodes do not get their own files back, or if Nodes keep our annotations and taints because the API server does not let them be changed'
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l delete-secrets -d 'Also delete Secrets of others in our namespaces'
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l restore-hosts -d 'First give every managed node back the files that it had before: pools are paused, and nodes are drained, and rebooted where that is needed, as many at once as maxUnavailable allows'
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l dry-run -d 'Print what would be done, and do nothing'
complete -c mco -n "__fish_mco_using_subcommand uninstall" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand uninstall" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand status" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand status" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand status" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand status" -l phase -d 'List only nodes in this phase; may be given several times' -r -f -a "done\t'In the pool\'s config and available'
unavailable\t'In the pool\'s config, not available'
goes\t'It is given the pool\'s config now'
moving\t'It is being updated'
failing\t'Its update fails'
waits\t'It needs an update and waits'"
complete -c mco -n "__fish_mco_using_subcommand status" -l node -d 'List only this node; may be given several times' -r
complete -c mco -n "__fish_mco_using_subcommand status" -l timeout -d 'With --until-updated: exit after this time, like 90s, 30m or 2h, and print what is still awaited' -r
complete -c mco -n "__fish_mco_using_subcommand status" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand status" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand status" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand status" -l all -d 'Also list the nodes that are done'
complete -c mco -n "__fish_mco_using_subcommand status" -s w -l watch -d 'Keep showing changes; on a terminal the table is updated in place'
complete -c mco -n "__fish_mco_using_subcommand status" -l until-updated -d 'With --watch: exit when every pool shown is updated, or cannot be until somebody changes something'
complete -c mco -n "__fish_mco_using_subcommand status" -l exit-code -d 'Exit with 3 when something needs attention, see below'
complete -c mco -n "__fish_mco_using_subcommand status" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l port -d 'The port on 127.0.0.1; 0 for any that is free' -r
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l listen -d 'The address to listen on in the cluster' -r
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l cert -d 'The certificate for HTTPS (PEM); read again when it changes [default: a self-signed one, made at start]' -r -F
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l key -d 'Its key (PEM)' -r -F
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l host -d 'A name by which people reach it in the cluster besides the Service\'s; may be given several times' -r
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l trusted-proxy -d 'A proxy that signs people in, whose X-Forwarded-User and X-Forwarded-Groups are trusted: an address or a range; may be given several times' -r
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l display -d 'The display: without one, no browser is opened' -r
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l wayland-display -d 'The same, on Wayland' -r
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l no-open -d 'Only print the address; do not open a browser'
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l in-cluster -d 'Serve everybody who may look at the cluster, over HTTPS, with this pod\'s account, until SIGTERM'
complete -c mco -n "__fish_mco_using_subcommand dashboard" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand dashboard" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand plan" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand plan" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand plan" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand plan" -l from -d 'Read the cluster\'s objects from this file or folder instead of a cluster; may be given several times' -r -F
complete -c mco -n "__fish_mco_using_subcommand plan" -s f -l filename -d 'Plan a change by these manifests: a file, a folder, or `-`; may be given several times' -r -F
complete -c mco -n "__fish_mco_using_subcommand plan" -l templates -d 'With -f: the folder of the controller\'s templates, for kinds that become MachineConfigs by them [default: that of the controller\'s image, if it exists]' -r -F
complete -c mco -n "__fish_mco_using_subcommand plan" -l pool -d 'Only this pool; may be given several times' -r
complete -c mco -n "__fish_mco_using_subcommand plan" -l refuse -d 'With -f: exit with 3 when the change costs a node this or more' -r -f -a "reload\t'Refuse a change that reloads a service, or worse'
restart\t'Refuse a change that restarts a service, or worse'
drain\t'Refuse a change that drains a node, or worse'
reboot\t'Refuse a change that reboots a node'"
complete -c mco -n "__fish_mco_using_subcommand plan" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand plan" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand plan" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand plan" -l delete -d 'With -f: plan that these objects are deleted, as by `kubectl delete -f`'
complete -c mco -n "__fish_mco_using_subcommand plan" -l show-secrets -d 'Also show contents that may be secret: of files that not everybody may read, and lines that look like secrets'
complete -c mco -n "__fish_mco_using_subcommand plan" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand pause" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand pause" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand pause" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand pause" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand pause" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand pause" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand pause" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand pause" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand resume" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand resume" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand resume" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand resume" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand resume" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand resume" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand resume" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand resume" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand approve" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand approve" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand approve" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand approve" -l config -d 'The rendered config that is approved [default: the one that waits]' -r
complete -c mco -n "__fish_mco_using_subcommand approve" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand approve" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand approve" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand approve" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand approve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand history" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand history" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand history" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand history" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand history" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand history" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand history" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand undo" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand undo" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand undo" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand undo" -l to -d 'The rendered config to go back to [default: the previous one]; `mco history` lists them' -r
complete -c mco -n "__fish_mco_using_subcommand undo" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand undo" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand undo" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand undo" -l release -d 'Remove the pin: the pool follows its MachineConfigs again'
complete -c mco -n "__fish_mco_using_subcommand undo" -l show-secrets -d 'Also show contents that may be secret: of files that not everybody may read, and lines that look like secrets'
complete -c mco -n "__fish_mco_using_subcommand undo" -s y -l yes -d 'Do not ask for confirmation'
complete -c mco -n "__fish_mco_using_subcommand undo" -l dry-run -d 'Print what would be done, and do nothing'
complete -c mco -n "__fish_mco_using_subcommand undo" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand undo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand retry" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand retry" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand retry" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand retry" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand retry" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand retry" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand retry" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand retry" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand explain" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand explain" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand explain" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand explain" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand explain" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand explain" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand explain" -l contested -d 'Only settings that more than one MachineConfig sets'
complete -c mco -n "__fish_mco_using_subcommand explain" -l show-secrets -d 'Also show contents that may be secret: of files that not everybody may read, and lines that look like secrets'
complete -c mco -n "__fish_mco_using_subcommand explain" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand render" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand render" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand render" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand render" -s f -l filename -d 'A file of manifests (YAML or JSON), a folder of such files, or `-` for standard input; may be given several times' -r -F
complete -c mco -n "__fish_mco_using_subcommand render" -l templates -d 'The folder of templates that the base MachineConfigs are made from' -r -F
complete -c mco -n "__fish_mco_using_subcommand render" -l pool -d 'Only this pool; may be given several times' -r
complete -c mco -n "__fish_mco_using_subcommand render" -l diff-with -d 'Show what differs from the rendering of these manifests, or from rendered configs' -r -F
complete -c mco -n "__fish_mco_using_subcommand render" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand render" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand render" -l diff -d 'Show what differs from the live pools instead of the result'
complete -c mco -n "__fish_mco_using_subcommand render" -l exit-code -d 'With a diff: exit with 3 when there is a difference'
complete -c mco -n "__fish_mco_using_subcommand render" -l show-secrets -d 'Also show contents that may be secret: of files that not everybody may read, and lines that look like secrets'
complete -c mco -n "__fish_mco_using_subcommand render" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand render" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand bundle" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand bundle" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand bundle" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand bundle" -s f -l filename -d 'The archive to write, a gzip-compressed tar; `-` for standard output [default: mco-bundle-TIME.tar.gz]' -r -F
complete -c mco -n "__fish_mco_using_subcommand bundle" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand bundle" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand bundle" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand bundle" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand lint" -s f -l filename -d 'A file of manifests (YAML or JSON), a folder of such files, or `-` for standard input; may be given several times' -r -F
complete -c mco -n "__fish_mco_using_subcommand lint" -l templates -d 'The folder of templates that the base MachineConfigs are made from: MachineConfigs that override these are reported too' -r -F
complete -c mco -n "__fish_mco_using_subcommand lint" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand lint" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand lint" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand lint" -l strict -d 'Exit with 3 for warnings too'
complete -c mco -n "__fish_mco_using_subcommand lint" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand lint" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand image; and not __fish_seen_subcommand_from inspect build" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand image; and not __fish_seen_subcommand_from inspect build" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand image; and not __fish_seen_subcommand_from inspect build" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand image; and not __fish_seen_subcommand_from inspect build" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand image; and not __fish_seen_subcommand_from inspect build" -f -a "inspect" -d 'Show what a node would get with an image: digest, OS version, labels, size of each layer'
complete -c mco -n "__fish_mco_using_subcommand image; and not __fish_seen_subcommand_from inspect build" -f -a "build" -d 'Build a pool\'s OS image on this computer, as the cluster does'
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from inspect" -l arch -d 'The architecture, if the image is for several [default: amd64 if it has that, else its first]' -r
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from inspect" -l authfile -d 'The file with registries\' credentials [default: that of this computer\'s container tools]' -r -F
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from inspect" -l home -r -F
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from inspect" -l runtime -r -F
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from inspect" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from inspect" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from inspect" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from inspect" -l insecure -d 'Connect to registries without TLS, or without verifying their certificates'
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from inspect" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from inspect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -s f -l filename -d 'A file of manifests (YAML or JSON), a folder of such files, or `-` for standard input; may be given several times' -r -F
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l templates -d 'The folder of templates that the base MachineConfigs are made from' -r -F
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l pool -d 'The pool [default: that of the MachineOSConfig among the manifests]' -r
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l containerfile -d 'The Containerfile, in place of that of the MachineOSConfig' -r -F
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l tag -d 'The image\'s name [default: the MachineOSConfig\'s renderedImagePushSpec]' -r
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l write-to -d 'Write Containerfile and context into this folder, and build nothing' -r -F
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l with -d 'The program that builds [default: buildah if it is there, else podman]' -r -f -a "buildah\t'buildah'
podman\t'podman'"
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l authfile -d 'The file with registries\' credentials [default: that of this computer\'s container tools]' -r -F
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l push -d 'Push the image, and print it by its digest'
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l insecure -d 'Connect to registries without TLS, or without verifying their certificates'
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand image; and __fish_seen_subcommand_from build" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand controller; and not __fish_seen_subcommand_from start bootstrap" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand controller; and not __fish_seen_subcommand_from start bootstrap" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand controller; and not __fish_seen_subcommand_from start bootstrap" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand controller; and not __fish_seen_subcommand_from start bootstrap" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand controller; and not __fish_seen_subcommand_from start bootstrap" -f -a "start" -d 'Run the controller until SIGTERM'
complete -c mco -n "__fish_mco_using_subcommand controller; and not __fish_seen_subcommand_from start bootstrap" -f -a "bootstrap" -d 'Render once, from the manifests in one folder to files in another'
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l templates -d 'The folder of the templates that the base MachineConfigs are made from' -r -F
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l metrics-listen -d 'The address where /metrics, /healthz and /readyz are served, or `off`' -r
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l metrics-secure-listen -d 'The address where the same is served over HTTPS, or `off`. Reading metrics there needs a bearer token with the right to `get` the path /metrics' -r
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l metrics-cert -d 'The certificate for HTTPS (PEM); read again when it changes [default: a self-signed one, made at start]' -r -F
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l metrics-key -d 'Its key (PEM)' -r -F
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l leader-elect -d 'Act only while holding the Lease, so that several controllers can run' -r -f -a "true\t''
false\t''"
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from bootstrap" -l manifest-dir -d 'The folder with the manifests: ControllerConfig, pools, MachineConfigs' -r -F
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from bootstrap" -l dest-dir -d 'The folder to write to' -r -F
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from bootstrap" -l pull-secret -d 'The pull secret\'s manifest' -r -F
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from bootstrap" -l templates -d 'The folder of the templates' -r -F
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from bootstrap" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from bootstrap" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from bootstrap" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand controller; and __fish_seen_subcommand_from bootstrap" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -f -a "start" -d 'Run the agent until SIGTERM'
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -f -a "plan" -d 'Show what a config would do on this host: every step and what it costs, or why it cannot be applied'
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -f -a "recover" -d 'Finish or undo what a crash interrupted; needs no API server'
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -f -a "try" -d 'Apply a config to this host and undo it unless you confirm it in time'
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -f -a "confirm" -d 'Keep the change that is on trial on this host'
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -f -a "watch-trial" -d 'Undo the change that is on trial on this host when its time is up; started by systemd'
complete -c mco -n "__fish_mco_using_subcommand daemon; and not __fish_seen_subcommand_from start plan recover try confirm watch-trial firstboot-complete-machineconfig" -f -a "firstboot-complete-machineconfig" -d 'Complete a machine\'s first boot: apply what Ignition cannot, before the kubelet starts'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l node-name -d 'The name of this host\'s Node [default: the host name]' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l root-mount -d 'The host\'s root folder' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l metrics-url -d 'The address where /metrics is served, or `off`' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l metrics-secure-listen -d 'The address where the same is served over HTTPS, or `off`. Reading metrics there needs a bearer token with the right to `get` the path /metrics' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l metrics-cert -d 'The certificate for HTTPS (PEM); read again when it changes [default: a self-signed one, made at start]' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l metrics-key -d 'Its key (PEM)' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l kubelet-healthz-enabled -d 'Check the kubelet\'s health' -r -f -a "true\t''
false\t''"
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l kubelet-healthz-endpoint -d 'The kubelet\'s health endpoint: an http URL with an IP address' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l once-from -d 'Apply this config (a MachineConfig or an Ignition config) to the host without a cluster, and end' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l skip-reboot -d 'With --once-from: do not reboot, even if the config needs it'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from plan" -s f -l filename -d 'The config: a file, or `-`' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from plan" -l policy -d 'A manifest of the MachineConfiguration whose disruption policies apply [default: the built-in ones]' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from plan" -l refuse -d 'Exit with 3 when the change costs this or more' -r -f -a "reload\t'Refuse a change that reloads a service, or worse'
restart\t'Refuse a change that restarts a service, or worse'
drain\t'Refuse a change that drains a node, or worse'
reboot\t'Refuse a change that reboots a node'"
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from plan" -l root-mount -d 'The host\'s root folder' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from plan" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from plan" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from plan" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from plan" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from recover" -l root-mount -d 'The host\'s root folder' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from recover" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from recover" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from recover" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from recover" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from try" -s f -l filename -d 'The config: a file, or `-`' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from try" -l confirm-within -d 'How long you may take to confirm it: 30s to 24h' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from try" -l root-mount -d 'The host\'s root folder' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from try" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from try" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from try" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from try" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from confirm" -l root-mount -d 'The host\'s root folder' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from confirm" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from confirm" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from confirm" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from confirm" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from watch-trial" -l root-mount -d 'The host\'s root folder' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from watch-trial" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from watch-trial" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from watch-trial" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from watch-trial" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from firstboot-complete-machineconfig" -l root-mount -d 'The host\'s root folder' -r -F
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from firstboot-complete-machineconfig" -l machineconfig-file -d 'The config that the config server left for the first boot, below the root folder' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from firstboot-complete-machineconfig" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from firstboot-complete-machineconfig" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from firstboot-complete-machineconfig" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand daemon; and __fish_seen_subcommand_from firstboot-complete-machineconfig" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand server; and not __fish_seen_subcommand_from start bootstrap" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand server; and not __fish_seen_subcommand_from start bootstrap" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand server; and not __fish_seen_subcommand_from start bootstrap" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand server; and not __fish_seen_subcommand_from start bootstrap" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand server; and not __fish_seen_subcommand_from start bootstrap" -f -a "start" -d 'Serve from the cluster until SIGTERM'
complete -c mco -n "__fish_mco_using_subcommand server; and not __fish_seen_subcommand_from start bootstrap" -f -a "bootstrap" -d 'Serve from a folder until SIGTERM, for the first machines of a cluster'
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l secure-port -d 'The HTTPS port' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l insecure-port -d 'The port for plain HTTP, which exposes configs to anyone on the network path; 0 for none. OpenShift\'s is 22624' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l cert -d 'The certificate (PEM); read again when it changes' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l key -d 'The key (PEM); read again when it changes' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l tls-min-version -d 'The minimum TLS version: VersionTLS12 or VersionTLS13' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l tls-cipher-suites -d 'Cipher suites to offer, by IANA, Go or OpenSSL name [default: all that are safe]' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l payload-version -d 'The release that this server belongs to' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l bind-address -d 'The address to listen on [default: all]' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l proxy-protocol-from -d 'A load balancer that speaks PROXY protocol, version 2. Machines are identified by the address in its header, which is then required; may be given several times' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l connections-per-address -d 'The most concurrent connections from one address (an IPv6 /64 counts as one); 0 for no limit. Raise it if thousands of machines boot behind one address (NAT)' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l metrics-listen -d 'The address where /metrics, /healthz and /readyz are served, or `off`' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l metrics-secure-listen -d 'The address where the same is served over HTTPS, or `off`. Reading metrics there needs a bearer token with the right to `get` the path /metrics' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l metrics-cert -d 'The certificate for HTTPS (PEM); read again when it changes [default: a self-signed one, made at start]' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l metrics-key -d 'Its key (PEM)' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l apiserver-url -d 'The API server\'s URL as machines reach it; written into the kubeconfig that they are given' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l bootstrap-token-dir -d 'Where the Secret with the bootstrap token is mounted' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l http2 -d 'Offer HTTP/2 too'
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l require-token -d 'Serve configs only to machines that send a boot token (see `mco token`)'
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l secure-port -d 'The HTTPS port' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l insecure-port -d 'The port for plain HTTP, which exposes configs to anyone on the network path; 0 for none. OpenShift\'s is 22624' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l cert -d 'The certificate (PEM); read again when it changes' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l key -d 'The key (PEM); read again when it changes' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l tls-min-version -d 'The minimum TLS version: VersionTLS12 or VersionTLS13' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l tls-cipher-suites -d 'Cipher suites to offer, by IANA, Go or OpenSSL name [default: all that are safe]' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l payload-version -d 'The release that this server belongs to' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l bind-address -d 'The address to listen on [default: all]' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l proxy-protocol-from -d 'A load balancer that speaks PROXY protocol, version 2. Machines are identified by the address in its header, which is then required; may be given several times' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l connections-per-address -d 'The most concurrent connections from one address (an IPv6 /64 counts as one); 0 for no limit. Raise it if thousands of machines boot behind one address (NAT)' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l metrics-listen -d 'The address where /metrics, /healthz and /readyz are served, or `off`' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l metrics-secure-listen -d 'The address where the same is served over HTTPS, or `off`. Reading metrics there needs a bearer token with the right to `get` the path /metrics' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l metrics-cert -d 'The certificate for HTTPS (PEM); read again when it changes [default: a self-signed one, made at start]' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l metrics-key -d 'Its key (PEM)' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l server-basedir -d 'The folder with machine-pools/ and machine-configs/' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l bootstrap-kubeconfig -d 'The kubeconfig that machines are given' -r -F
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l bootstrap-certs -d 'A registry\'s CA, `REGISTRY=FILE` with the file below the base folder; may be given several times' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l http2 -d 'Offer HTTP/2 too'
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand server; and __fish_seen_subcommand_from bootstrap" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand operator; and not __fish_seen_subcommand_from start" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand operator; and not __fish_seen_subcommand_from start" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand operator; and not __fish_seen_subcommand_from start" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand operator; and not __fish_seen_subcommand_from start" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand operator; and not __fish_seen_subcommand_from start" -f -a "start" -d 'Keep everything that is installed as the MachineConfigOperator cluster says, until SIGTERM'
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l image -d 'The image that this operator runs in: it acts only while the settings name this image [default: it does not run in a pod, and leaves the operator\'s Deployment alone]' -r
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l metrics-listen -d 'The address where /metrics, /healthz and /readyz are served, or `off`' -r
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l metrics-secure-listen -d 'The address where the same is served over HTTPS, or `off`. Reading metrics there needs a bearer token with the right to `get` the path /metrics' -r
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l metrics-cert -d 'The certificate for HTTPS (PEM); read again when it changes [default: a self-signed one, made at start]' -r -F
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l metrics-key -d 'Its key (PEM)' -r -F
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l leader-elect -d 'Act only while holding the Lease, so that several operators can run' -r -f -a "true\t''
false\t''"
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l require-token -d 'Without a MachineConfigOperator: each pool\'s user data holds a boot token, for a config server with --require-token'
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l once -d 'Make one pass, print what was written, and exit; what takes time is left to the next pass'
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand operator; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -f -a "create" -d 'Create a token and print it; it cannot be shown again'
complete -c mco -n "__fish_mco_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -f -a "list" -d 'List tokens: whom they are for, when they expire, whether they were used'
complete -c mco -n "__fish_mco_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -f -a "revoke" -d 'Revoke tokens, at once'
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l ttl -d 'How long the token is valid, like 90m, 24h or 7d [default: until it is revoked]' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l grace -d 'With --single-use: how long that machine may ask again if its transfer was interrupted' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l node -d 'The machine that the token is for: a custom pool then expects its first boot, and the server\'s log and `mco token list` show it' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l address -d 'The address or network that the machine must ask from; may be given several times' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l single-use -d 'Make the token valid for the boot of one machine only'
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from list" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from list" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from list" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from list" -s o -l output -d 'The output format' -r -f -a "text\t'For people'
json\t'For programs'
yaml\t'For programs and people'"
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from list" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from list" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from list" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from revoke" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from revoke" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from revoke" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from revoke" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from revoke" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from revoke" -l spent -d 'Revoke all tokens that have expired or were used'
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from revoke" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand token; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand pointer" -l kubeconfig -d 'The kubeconfig to use [default: as kubectl finds it, else the pod\'s own]' -r -F
complete -c mco -n "__fish_mco_using_subcommand pointer" -l context -d 'The context of the kubeconfig to use [default: its current-context]' -r
complete -c mco -n "__fish_mco_using_subcommand pointer" -l kubeconfig-list -d 'The environment\'s kubeconfig files, used without --kubeconfig: for each setting the first file that has it counts' -r
complete -c mco -n "__fish_mco_using_subcommand pointer" -l token -d 'The boot token to send [default: the pool\'s own, where `mco operator` keeps one]' -r
complete -c mco -n "__fish_mco_using_subcommand pointer" -l ignition-version -d 'The Ignition version of the config: one that the machine\'s Ignition reads' -r
complete -c mco -n "__fish_mco_using_subcommand pointer" -l host -d 'The config server\'s host name or address, as machines reach it [default: from the ControllerConfig]' -r
complete -c mco -n "__fish_mco_using_subcommand pointer" -l port -d 'The server\'s port' -r
complete -c mco -n "__fish_mco_using_subcommand pointer" -l ca -d 'The CA that machines trust (PEM) [default: from the ConfigMap machine-config-server-ca]' -r -F
complete -c mco -n "__fish_mco_using_subcommand pointer" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand pointer" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand pointer" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand pointer" -s h -l help -d 'Print help'
complete -c mco -n "__fish_mco_using_subcommand completion" -l log -d 'What to log: a level, or filters like `info,controller=debug`' -r
complete -c mco -n "__fish_mco_using_subcommand completion" -l no-color -d 'Any text but an empty one turns colours off (<https://no-color.org>)' -r
complete -c mco -n "__fish_mco_using_subcommand completion" -l log-json -d 'One JSON object per log line'
complete -c mco -n "__fish_mco_using_subcommand completion" -s h -l help -d 'Print help'
