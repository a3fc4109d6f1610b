#compdef mco

autoload -U is-at-least

_mco() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_mco_commands" \
"*::: :->mco" \
&& ret=0
    case $state in
    (mco)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:mco-command-$line[1]:"
        case $line[1] in
            (install)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'*--pool=[A pool to create; may be given several times \[default\: master and worker; with --image those of the settings\]]:NAME:_default' \
'--cluster-dns-ip=[The address of the cluster'\''s DNS service \[default\: that of the cluster'\''s DNS Service in kube-system, else 10.96.0.10\]]:IP:_default' \
'--image=[Run the operator as pods of this image; it installs and keeps everything else, as MachineConfigOperator cluster says \[default\: all parts run elsewhere\]]:IMAGE:_default' \
'--timeout=[With --image\: how long to wait until everything runs]:TIME:_default' \
'*--proxy-protocol-from=[With --image\: a load balancer in front of the config server that speaks PROXY protocol, version 2; may be given several times; \`none\` removes all; without this option the existing ones stay]:IP[/BITS]:_default' \
'--api-server-url=[The API server'\''s URL, as machines reach it \[default\: from the kubeconfig, unless that is a loopback address\]]:URL:_default' \
'--api-server-ca=[The CA that the API server'\''s clients trust, PEM \[default\: the kubeconfig'\''s\]]:FILE:_files' \
'--daemon-image=[Run the node agents as pods of this image \[default\: with --image pods of that image, or what the settings say; without it services of their hosts\]]:IMAGE:_default' \
'-o+[With --dry-run\: how to print the objects]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[With --dry-run\: how to print the objects]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'(-o --output)--output-dir=[With --dry-run\: write the objects into this folder for kubectl, with the CRDs in a separate file]:DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'(--timeout)--no-wait[With --image\: do not wait until everything runs]' \
'--take-over[Install on a cluster whose objects another program manages, and take them over from it]' \
'--allow-not-upgradeable[With --image\: upgrade although the installation says that it must not be upgraded now (its condition Upgradeable)]' \
'--require-token[With --image\: the config server gives configs only to machines with a boot token \[default for a new installation; an existing one stays as it is\]]' \
'(--require-token)--open[With --image\: the config server serves configs to anyone who can reach it, over plain HTTP (22624) too, as OpenShift'\''s does]' \
'(--daemon-image)--agents-of-hosts[With --image\: the node agents are services of their hosts, from a package or an image of the host]' \
'--openshift-config-crds[Also install the CRDs of OpenShift'\''s config and operator kinds, which are read if they exist]' \
'--dry-run[Print what would be done, and do nothing]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(uninstall)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'--restore-timeout=[With --restore-hosts\: how long one node may take, like 30m]:TIME:_default' \
'-o+[With --dry-run\: how to print it]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[With --dry-run\: how to print it]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'(--dry-run)-y[Do not ask for confirmation]' \
'(--dry-run)--yes[Do not ask for confirmation]' \
'--force[Remove everything even while nodes are being updated, if nodes do not get their own files back, or if Nodes keep our annotations and taints because the API server does not let them be changed]' \
'--delete-secrets[Also delete Secrets of others in our namespaces]' \
'--restore-hosts[First give every managed node back the files that it had before\: pools are paused, and nodes are drained, and rebooted where that is needed, as many at once as maxUnavailable allows]' \
'--dry-run[Print what would be done, and do nothing]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(status)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'*--phase=[List only nodes in this phase; may be given several times]:PHASE:((done\:"In the pool'\''s config and available"
unavailable\:"In the pool'\''s config, not available"
goes\:"It is given the pool'\''s config now"
moving\:"It is being updated"
failing\:"Its update fails"
waits\:"It needs an update and waits"))' \
'*--node=[List only this node; may be given several times]:NAME:_default' \
'--timeout=[With --until-updated\: exit after this time, like 90s, 30m or 2h, and print what is still awaited]:TIME:_default' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'(--phase --node)--all[Also list the nodes that are done]' \
'-w[Keep showing changes; on a terminal the table is updated in place]' \
'--watch[Keep showing changes; on a terminal the table is updated in place]' \
'--until-updated[With --watch\: exit when every pool shown is updated, or cannot be until somebody changes something]' \
'--exit-code[Exit with 3 when something needs attention, see below]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::pools -- Only these pools:_default' \
&& ret=0
;;
(dashboard)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'--port=[The port on 127.0.0.1; 0 for any that is free]:PORT:_default' \
'--listen=[The address to listen on in the cluster]:ADDR:_default' \
'--cert=[The certificate for HTTPS (PEM); read again when it changes \[default\: a self-signed one, made at start\]]:FILE:_files' \
'--key=[Its key (PEM)]:FILE:_files' \
'*--host=[A name by which people reach it in the cluster besides the Service'\''s; may be given several times]:NAME:_default' \
'*--trusted-proxy=[A proxy that signs people in, whose X-Forwarded-User and X-Forwarded-Groups are trusted\: an address or a range; may be given several times]:NET:_default' \
'--display=[The display\: without one, no browser is opened]:ANY:_default' \
'--wayland-display=[The same, on Wayland]:ANY:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--no-open[Only print the address; do not open a browser]' \
'(--port --no-open)--in-cluster[Serve everybody who may look at the cluster, over HTTPS, with this pod'\''s account, until SIGTERM]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(plan)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'(--kubeconfig --context)*--from=[Read the cluster'\''s objects from this file or folder instead of a cluster; may be given several times]:FILE|DIR:_files' \
'*-f+[Plan a change by these manifests\: a file, a folder, or \`-\`; may be given several times]:FILE|DIR:_files' \
'*--filename=[Plan a change by these manifests\: a file, a folder, or \`-\`; may be given several times]:FILE|DIR:_files' \
'--templates=[With -f\: the folder of the controller'\''s templates, for kinds that become MachineConfigs by them \[default\: that of the controller'\''s image, if it exists\]]:DIR:_files' \
'*--pool=[Only this pool; may be given several times]:NAME:_default' \
'--refuse=[With -f\: exit with 3 when the change costs a node this or more]:REFUSE:((reload\:"Refuse a change that reloads a service, or worse"
restart\:"Refuse a change that restarts a service, or worse"
drain\:"Refuse a change that drains a node, or worse"
reboot\:"Refuse a change that reboots a node"))' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--delete[With -f\: plan that these objects are deleted, as by \`kubectl delete -f\`]' \
'--show-secrets[Also show contents that may be secret\: of files that not everybody may read, and lines that look like secrets]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(pause)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::pools -- The pools:_default' \
&& ret=0
;;
(resume)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::pools -- The pools:_default' \
&& ret=0
;;
(approve)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'--config=[The rendered config that is approved \[default\: the one that waits\]]:CONFIG:_default' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':pool -- The pool:_default' \
&& ret=0
;;
(history)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':pool -- The pool:_default' \
&& ret=0
;;
(undo)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'(--release)--to=[The rendered config to go back to \[default\: the previous one\]; \`mco history\` lists them]:CONFIG:_default' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--release[Remove the pin\: the pool follows its MachineConfigs again]' \
'--show-secrets[Also show contents that may be secret\: of files that not everybody may read, and lines that look like secrets]' \
'-y[Do not ask for confirmation]' \
'--yes[Do not ask for confirmation]' \
'(-y --yes)--dry-run[Print what would be done, and do nothing]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':pool -- The pool:_default' \
&& ret=0
;;
(retry)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::nodes -- The nodes:_default' \
&& ret=0
;;
(explain)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'()--contested[Only settings that more than one MachineConfig sets]' \
'--show-secrets[Also show contents that may be secret\: of files that not everybody may read, and lines that look like secrets]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':pool -- The pool:_default' \
'::what -- A path, unit, UNIT/DROPIN, user, kernel argument, extension or field of the spec:_default' \
&& ret=0
;;
(render)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'*-f+[A file of manifests (YAML or JSON), a folder of such files, or \`-\` for standard input; may be given several times]:FILE|DIR:_files' \
'*--filename=[A file of manifests (YAML or JSON), a folder of such files, or \`-\` for standard input; may be given several times]:FILE|DIR:_files' \
'--templates=[The folder of templates that the base MachineConfigs are made from]:DIR:_files' \
'*--pool=[Only this pool; may be given several times]:NAME:_default' \
'*--diff-with=[Show what differs from the rendering of these manifests, or from rendered configs]:FILE|DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'(--diff-with)--diff[Show what differs from the live pools instead of the result]' \
'--exit-code[With a diff\: exit with 3 when there is a difference]' \
'--show-secrets[Also show contents that may be secret\: of files that not everybody may read, and lines that look like secrets]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(bundle)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'-f+[The archive to write, a gzip-compressed tar; \`-\` for standard output \[default\: mco-bundle-TIME.tar.gz\]]:FILE:_files' \
'--filename=[The archive to write, a gzip-compressed tar; \`-\` for standard output \[default\: mco-bundle-TIME.tar.gz\]]:FILE:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(lint)
_arguments "${_arguments_options[@]}" : \
'*-f+[A file of manifests (YAML or JSON), a folder of such files, or \`-\` for standard input; may be given several times]:FILE|DIR:_files' \
'*--filename=[A file of manifests (YAML or JSON), a folder of such files, or \`-\` for standard input; may be given several times]:FILE|DIR:_files' \
'--templates=[The folder of templates that the base MachineConfigs are made from\: MachineConfigs that override these are reported too]:DIR:_files' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--strict[Exit with 3 for warnings too]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(image)
_arguments "${_arguments_options[@]}" : \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
":: :_mco__subcmd__image_commands" \
"*::: :->image" \
&& ret=0

    case $state in
    (image)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:mco-image-command-$line[1]:"
        case $line[1] in
            (inspect)
_arguments "${_arguments_options[@]}" : \
'--arch=[The architecture, if the image is for several \[default\: amd64 if it has that, else its first\]]:ARCH:_default' \
'--authfile=[The file with registries'\'' credentials \[default\: that of this computer'\''s container tools\]]:FILE:_files' \
'--home=[]:DIR:_files' \
'--runtime=[]:DIR:_files' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--insecure[Connect to registries without TLS, or without verifying their certificates]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':image -- The image:_default' \
&& ret=0
;;
(build)
_arguments "${_arguments_options[@]}" : \
'*-f+[A file of manifests (YAML or JSON), a folder of such files, or \`-\` for standard input; may be given several times]:FILE|DIR:_files' \
'*--filename=[A file of manifests (YAML or JSON), a folder of such files, or \`-\` for standard input; may be given several times]:FILE|DIR:_files' \
'--templates=[The folder of templates that the base MachineConfigs are made from]:DIR:_files' \
'--pool=[The pool \[default\: that of the MachineOSConfig among the manifests\]]:NAME:_default' \
'--containerfile=[The Containerfile, in place of that of the MachineOSConfig]:FILE:_files' \
'--tag=[The image'\''s name \[default\: the MachineOSConfig'\''s renderedImagePushSpec\]]:IMAGE:_default' \
'(--push --tag)--write-to=[Write Containerfile and context into this folder, and build nothing]:DIR:_files' \
'--with=[The program that builds \[default\: buildah if it is there, else podman\]]:PROGRAM:((buildah\:"buildah"
podman\:"podman"))' \
'--authfile=[The file with registries'\'' credentials \[default\: that of this computer'\''s container tools\]]:FILE:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--push[Push the image, and print it by its digest]' \
'--insecure[Connect to registries without TLS, or without verifying their certificates]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(controller)
_arguments "${_arguments_options[@]}" : \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
":: :_mco__subcmd__controller_commands" \
"*::: :->controller" \
&& ret=0

    case $state in
    (controller)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:mco-controller-command-$line[1]:"
        case $line[1] in
            (start)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'--templates=[The folder of the templates that the base MachineConfigs are made from]:DIR:_files' \
'--metrics-listen=[The address where /metrics, /healthz and /readyz are served, or \`off\`]:ADDR:_default' \
'--metrics-secure-listen=[The address where the same is served over HTTPS, or \`off\`. Reading metrics there needs a bearer token with the right to \`get\` the path /metrics]:ADDR:_default' \
'--metrics-cert=[The certificate for HTTPS (PEM); read again when it changes \[default\: a self-signed one, made at start\]]:FILE:_files' \
'--metrics-key=[Its key (PEM)]:FILE:_files' \
'--leader-elect=[Act only while holding the Lease, so that several controllers can run]::BOOL:(true false)' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(bootstrap)
_arguments "${_arguments_options[@]}" : \
'--manifest-dir=[The folder with the manifests\: ControllerConfig, pools, MachineConfigs]:DIR:_files' \
'--dest-dir=[The folder to write to]:DIR:_files' \
'--pull-secret=[The pull secret'\''s manifest]:FILE:_files' \
'--templates=[The folder of the templates]:DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(daemon)
_arguments "${_arguments_options[@]}" : \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
":: :_mco__subcmd__daemon_commands" \
"*::: :->daemon" \
&& ret=0

    case $state in
    (daemon)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:mco-daemon-command-$line[1]:"
        case $line[1] in
            (start)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'--node-name=[The name of this host'\''s Node \[default\: the host name\]]:NAME:_default' \
'--root-mount=[The host'\''s root folder]:DIR:_files' \
'--metrics-url=[The address where /metrics is served, or \`off\`]:ADDR:_default' \
'--metrics-secure-listen=[The address where the same is served over HTTPS, or \`off\`. Reading metrics there needs a bearer token with the right to \`get\` the path /metrics]:ADDR:_default' \
'--metrics-cert=[The certificate for HTTPS (PEM); read again when it changes \[default\: a self-signed one, made at start\]]:FILE:_files' \
'--metrics-key=[Its key (PEM)]:FILE:_files' \
'--kubelet-healthz-enabled=[Check the kubelet'\''s health]::BOOL:(true false)' \
'--kubelet-healthz-endpoint=[The kubelet'\''s health endpoint\: an http URL with an IP address]:URL:_default' \
'--once-from=[Apply this config (a MachineConfig or an Ignition config) to the host without a cluster, and end]:FILE|URL:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--skip-reboot[With --once-from\: do not reboot, even if the config needs it]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(plan)
_arguments "${_arguments_options[@]}" : \
'-f+[The config\: a file, or \`-\`]:FILE:_files' \
'--filename=[The config\: a file, or \`-\`]:FILE:_files' \
'--policy=[A manifest of the MachineConfiguration whose disruption policies apply \[default\: the built-in ones\]]:FILE:_files' \
'--refuse=[Exit with 3 when the change costs this or more]:REFUSE:((reload\:"Refuse a change that reloads a service, or worse"
restart\:"Refuse a change that restarts a service, or worse"
drain\:"Refuse a change that drains a node, or worse"
reboot\:"Refuse a change that reboots a node"))' \
'--root-mount=[The host'\''s root folder]:DIR:_files' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(recover)
_arguments "${_arguments_options[@]}" : \
'--root-mount=[The host'\''s root folder]:DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(try)
_arguments "${_arguments_options[@]}" : \
'-f+[The config\: a file, or \`-\`]:FILE:_files' \
'--filename=[The config\: a file, or \`-\`]:FILE:_files' \
'--confirm-within=[How long you may take to confirm it\: 30s to 24h]:TIME:_default' \
'--root-mount=[The host'\''s root folder]:DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(confirm)
_arguments "${_arguments_options[@]}" : \
'--root-mount=[The host'\''s root folder]:DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(watch-trial)
_arguments "${_arguments_options[@]}" : \
'--root-mount=[The host'\''s root folder]:DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(firstboot-complete-machineconfig)
_arguments "${_arguments_options[@]}" : \
'--root-mount=[The host'\''s root folder]:DIR:_files' \
'--machineconfig-file=[The config that the config server left for the first boot, below the root folder]:FILE:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(server)
_arguments "${_arguments_options[@]}" : \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
":: :_mco__subcmd__server_commands" \
"*::: :->server" \
&& ret=0

    case $state in
    (server)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:mco-server-command-$line[1]:"
        case $line[1] in
            (start)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'--secure-port=[The HTTPS port]:PORT:_default' \
'--insecure-port=[The port for plain HTTP, which exposes configs to anyone on the network path; 0 for none. OpenShift'\''s is 22624]:PORT:_default' \
'--cert=[The certificate (PEM); read again when it changes]:FILE:_files' \
'--key=[The key (PEM); read again when it changes]:FILE:_files' \
'--tls-min-version=[The minimum TLS version\: VersionTLS12 or VersionTLS13]:VERSION:_default' \
'*--tls-cipher-suites=[Cipher suites to offer, by IANA, Go or OpenSSL name \[default\: all that are safe\]]:NAMES:_default' \
'--payload-version=[The release that this server belongs to]:VERSION:_default' \
'--bind-address=[The address to listen on \[default\: all\]]:IP:_default' \
'*--proxy-protocol-from=[A load balancer that speaks PROXY protocol, version 2. Machines are identified by the address in its header, which is then required; may be given several times]:IP[/BITS]:_default' \
'--connections-per-address=[The most concurrent connections from one address (an IPv6 /64 counts as one); 0 for no limit. Raise it if thousands of machines boot behind one address (NAT)]:N:_default' \
'--metrics-listen=[The address where /metrics, /healthz and /readyz are served, or \`off\`]:ADDR:_default' \
'--metrics-secure-listen=[The address where the same is served over HTTPS, or \`off\`. Reading metrics there needs a bearer token with the right to \`get\` the path /metrics]:ADDR:_default' \
'--metrics-cert=[The certificate for HTTPS (PEM); read again when it changes \[default\: a self-signed one, made at start\]]:FILE:_files' \
'--metrics-key=[Its key (PEM)]:FILE:_files' \
'--apiserver-url=[The API server'\''s URL as machines reach it; written into the kubeconfig that they are given]:URL:_default' \
'--bootstrap-token-dir=[Where the Secret with the bootstrap token is mounted]:DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--http2[Offer HTTP/2 too]' \
'--require-token[Serve configs only to machines that send a boot token (see \`mco token\`)]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(bootstrap)
_arguments "${_arguments_options[@]}" : \
'--secure-port=[The HTTPS port]:PORT:_default' \
'--insecure-port=[The port for plain HTTP, which exposes configs to anyone on the network path; 0 for none. OpenShift'\''s is 22624]:PORT:_default' \
'--cert=[The certificate (PEM); read again when it changes]:FILE:_files' \
'--key=[The key (PEM); read again when it changes]:FILE:_files' \
'--tls-min-version=[The minimum TLS version\: VersionTLS12 or VersionTLS13]:VERSION:_default' \
'*--tls-cipher-suites=[Cipher suites to offer, by IANA, Go or OpenSSL name \[default\: all that are safe\]]:NAMES:_default' \
'--payload-version=[The release that this server belongs to]:VERSION:_default' \
'--bind-address=[The address to listen on \[default\: all\]]:IP:_default' \
'*--proxy-protocol-from=[A load balancer that speaks PROXY protocol, version 2. Machines are identified by the address in its header, which is then required; may be given several times]:IP[/BITS]:_default' \
'--connections-per-address=[The most concurrent connections from one address (an IPv6 /64 counts as one); 0 for no limit. Raise it if thousands of machines boot behind one address (NAT)]:N:_default' \
'--metrics-listen=[The address where /metrics, /healthz and /readyz are served, or \`off\`]:ADDR:_default' \
'--metrics-secure-listen=[The address where the same is served over HTTPS, or \`off\`. Reading metrics there needs a bearer token with the right to \`get\` the path /metrics]:ADDR:_default' \
'--metrics-cert=[The certificate for HTTPS (PEM); read again when it changes \[default\: a self-signed one, made at start\]]:FILE:_files' \
'--metrics-key=[Its key (PEM)]:FILE:_files' \
'--server-basedir=[The folder with machine-pools/ and machine-configs/]:DIR:_files' \
'--bootstrap-kubeconfig=[The kubeconfig that machines are given]:FILE:_files' \
'*--bootstrap-certs=[A registry'\''s CA, \`REGISTRY=FILE\` with the file below the base folder; may be given several times]:REGISTRY=FILE:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--http2[Offer HTTP/2 too]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(operator)
_arguments "${_arguments_options[@]}" : \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
":: :_mco__subcmd__operator_commands" \
"*::: :->operator" \
&& ret=0

    case $state in
    (operator)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:mco-operator-command-$line[1]:"
        case $line[1] in
            (start)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'--image=[The image that this operator runs in\: it acts only while the settings name this image \[default\: it does not run in a pod, and leaves the operator'\''s Deployment alone\]]:IMAGE:_default' \
'--metrics-listen=[The address where /metrics, /healthz and /readyz are served, or \`off\`]:ADDR:_default' \
'--metrics-secure-listen=[The address where the same is served over HTTPS, or \`off\`. Reading metrics there needs a bearer token with the right to \`get\` the path /metrics]:ADDR:_default' \
'--metrics-cert=[The certificate for HTTPS (PEM); read again when it changes \[default\: a self-signed one, made at start\]]:FILE:_files' \
'--metrics-key=[Its key (PEM)]:FILE:_files' \
'--leader-elect=[Act only while holding the Lease, so that several operators can run]::BOOL:(true false)' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--require-token[Without a MachineConfigOperator\: each pool'\''s user data holds a boot token, for a config server with --require-token]' \
'--once[Make one pass, print what was written, and exit; what takes time is left to the next pass]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(token)
_arguments "${_arguments_options[@]}" : \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
":: :_mco__subcmd__token_commands" \
"*::: :->token" \
&& ret=0

    case $state in
    (token)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:mco-token-command-$line[1]:"
        case $line[1] in
            (create)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'--ttl=[How long the token is valid, like 90m, 24h or 7d \[default\: until it is revoked\]]:TIME:_default' \
'--grace=[With --single-use\: how long that machine may ask again if its transfer was interrupted]:TIME:_default' \
'--node=[The machine that the token is for\: a custom pool then expects its first boot, and the server'\''s log and \`mco token list\` show it]:NAME:_default' \
'*--address=[The address or network that the machine must ask from; may be given several times]:IP[/BITS]:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--single-use[Make the token valid for the boot of one machine only]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
':pool -- The pool whose config the token gives access to:_default' \
&& ret=0
;;
(list)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'-o+[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[The output format]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::pool -- Only tokens of this pool:_default' \
&& ret=0
;;
(revoke)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--spent[Revoke all tokens that have expired or were used]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
'*::ids -- The tokens'\'' IDs\: the part before the dot:_default' \
&& ret=0
;;
        esac
    ;;
esac
;;
(pointer)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[The environment'\''s kubeconfig files, used without --kubeconfig\: for each setting the first file that has it counts]:FILES:_default' \
'--token=[The boot token to send \[default\: the pool'\''s own, where \`mco operator\` keeps one\]]:TOKEN:_default' \
'--ignition-version=[The Ignition version of the config\: one that the machine'\''s Ignition reads]:VERSION:_default' \
'--host=[The config server'\''s host name or address, as machines reach it \[default\: from the ControllerConfig\]]:HOST:_default' \
'--port=[The server'\''s port]:PORT:_default' \
'--ca=[The CA that machines trust (PEM) \[default\: from the ConfigMap machine-config-server-ca\]]:FILE:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
':pool -- The pool that the machine boots into:_default' \
&& ret=0
;;
(completion)
_arguments "${_arguments_options[@]}" : \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one turns colours off (<https\://no-color.org>)]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
':shell -- The shell:(bash elvish fish powershell zsh)' \
&& ret=0
;;
        esac
    ;;
esac
}

(( $+functions[_mco_commands] )) ||
_mco_commands() {
    local commands; commands=(
'install:Install namespace, CRDs, ControllerConfig and pools in a cluster' \
'uninstall:Remove everything that was installed; hosts keep their files' \
'status:Show pools and nodes\: who waits for what, and why' \
'dashboard:Serve a page on this computer that shows pools and nodes live' \
'plan:Show what the controller does next, or what a change would do to the nodes; writes nothing' \
'pause:Pause pools\: their nodes get no new configs' \
'resume:Resume paused pools' \
'approve:Approve the wave of a pool that waits for an approval' \
'history:Show the history of a pool'\''s rendered configs\: when, what changed, and who changed it' \
'undo:Roll a pool back to an earlier config, until its MachineConfigs are corrected' \
'retry:Make nodes retry at once what failed' \
'explain:Show which MachineConfig set a file, unit or argument of a pool, and which were overridden' \
'render:Render manifests without a cluster, or show what they would change' \
'bundle:Collect what a bug report needs in one archive, without secrets' \
'lint:Check manifests\: each finding with its place and remedy' \
'image:OS images\: inspect one, or build a pool'\''s own on this computer' \
'controller:The controller\: renders configs, rolls them out, drains nodes' \
'daemon:The node agent\: applies configs to this host' \
'server:The config server\: serves booting machines their Ignition config' \
'operator:The operator\: installs the other parts and keeps them as the settings say' \
'token:Boot tokens\: which machines may fetch a pool'\''s config' \
'pointer:Print the pointer config that a machine is provisioned with\: it makes the machine fetch its config from the config server' \
'completion:Print a shell completion script' \
    )
    _describe -t commands 'mco commands' commands "$@"
}
(( $+functions[_mco__subcmd__approve_commands] )) ||
_mco__subcmd__approve_commands() {
    local commands; commands=()
    _describe -t commands 'mco approve commands' commands "$@"
}
(( $+functions[_mco__subcmd__bundle_commands] )) ||
_mco__subcmd__bundle_commands() {
    local commands; commands=()
    _describe -t commands 'mco bundle commands' commands "$@"
}
(( $+functions[_mco__subcmd__completion_commands] )) ||
_mco__subcmd__completion_commands() {
    local commands; commands=()
    _describe -t commands 'mco completion commands' commands "$@"
}
(( $+functions[_mco__subcmd__controller_commands] )) ||
_mco__subcmd__controller_commands() {
    local commands; commands=(
'start:Run the controller until SIGTERM' \
'bootstrap:Render once, from the manifests in one folder to files in another' \
    )
    _describe -t commands 'mco controller commands' commands "$@"
}
(( $+functions[_mco__subcmd__controller__subcmd__bootstrap_commands] )) ||
_mco__subcmd__controller__subcmd__bootstrap_commands() {
    local commands; commands=()
    _describe -t commands 'mco controller bootstrap commands' commands "$@"
}
(( $+functions[_mco__subcmd__controller__subcmd__start_commands] )) ||
_mco__subcmd__controller__subcmd__start_commands() {
    local commands; commands=()
    _describe -t commands 'mco controller start commands' commands "$@"
}
(( $+functions[_mco__subcmd__daemon_commands] )) ||
_mco__subcmd__daemon_commands() {
    local commands; commands=(
'start:Run the agent until SIGTERM' \
'plan:Show what a config would do on this host\: every step and what it costs, or why it cannot be applied' \
'recover:Finish or undo what a crash interrupted; needs no API server' \
'try:Apply a config to this host and undo it unless you confirm it in time' \
'confirm:Keep the change that is on trial on this host' \
'watch-trial:Undo the change that is on trial on this host when its time is up; started by systemd' \
'firstboot-complete-machineconfig:Complete a machine'\''s first boot\: apply what Ignition cannot, before the kubelet starts' \
    )
    _describe -t commands 'mco daemon commands' commands "$@"
}
(( $+functions[_mco__subcmd__daemon__subcmd__confirm_commands] )) ||
_mco__subcmd__daemon__subcmd__confirm_commands() {
    local commands; commands=()
    _describe -t commands 'mco daemon confirm commands' commands "$@"
}
(( $+functions[_mco__subcmd__daemon__subcmd__firstboot-complete-machineconfig_commands] )) ||
_mco__subcmd__daemon__subcmd__firstboot-complete-machineconfig_commands() {
    local commands; commands=()
    _describe -t commands 'mco daemon firstboot-complete-machineconfig commands' commands "$@"
}
(( $+functions[_mco__subcmd__daemon__subcmd__plan_commands] )) ||
_mco__subcmd__daemon__subcmd__plan_commands() {
    local commands; commands=()
    _describe -t commands 'mco daemon plan commands' commands "$@"
}
(( $+functions[_mco__subcmd__daemon__subcmd__recover_commands] )) ||
_mco__subcmd__daemon__subcmd__recover_commands() {
    local commands; commands=()
    _describe -t commands 'mco daemon recover commands' commands "$@"
}
(( $+functions[_mco__subcmd__daemon__subcmd__start_commands] )) ||
_mco__subcmd__daemon__subcmd__start_commands() {
    local commands; commands=()
    _describe -t commands 'mco daemon start commands' commands "$@"
}
(( $+functions[_mco__subcmd__daemon__subcmd__try_commands] )) ||
_mco__subcmd__daemon__subcmd__try_commands() {
    local commands; commands=()
    _describe -t commands 'mco daemon try commands' commands "$@"
}
(( $+functions[_mco__subcmd__daemon__subcmd__watch-trial_commands] )) ||
_mco__subcmd__daemon__subcmd__watch-trial_commands() {
    local commands; commands=()
    _describe -t commands 'mco daemon watch-trial commands' commands "$@"
}
(( $+functions[_mco__subcmd__dashboard_commands] )) ||
_mco__subcmd__dashboard_commands() {
    local commands; commands=()
    _describe -t commands 'mco dashboard commands' commands "$@"
}
(( $+functions[_mco__subcmd__explain_commands] )) ||
_mco__subcmd__explain_commands() {
    local commands; commands=()
    _describe -t commands 'mco explain commands' commands "$@"
}
(( $+functions[_mco__subcmd__history_commands] )) ||
_mco__subcmd__history_commands() {
    local commands; commands=()
    _describe -t commands 'mco history commands' commands "$@"
}
(( $+functions[_mco__subcmd__image_commands] )) ||
_mco__subcmd__image_commands() {
    local commands; commands=(
'inspect:Show what a node would get with an image\: digest, OS version, labels, size of each layer' \
'build:Build a pool'\''s OS image on this computer, as the cluster does' \
    )
    _describe -t commands 'mco image commands' commands "$@"
}
(( $+functions[_mco__subcmd__image__subcmd__build_commands] )) ||
_mco__subcmd__image__subcmd__build_commands() {
    local commands; commands=()
    _describe -t commands 'mco image build commands' commands "$@"
}
(( $+functions[_mco__subcmd__image__subcmd__inspect_commands] )) ||
_mco__subcmd__image__subcmd__inspect_commands() {
    local commands; commands=()
    _describe -t commands 'mco image inspect commands' commands "$@"
}
(( $+functions[_mco__subcmd__install_commands] )) ||
_mco__subcmd__install_commands() {
    local commands; commands=()
    _describe -t commands 'mco install commands' commands "$@"
}
(( $+functions[_mco__subcmd__lint_commands] )) ||
_mco__subcmd__lint_commands() {
    local commands; commands=()
    _describe -t commands 'mco lint commands' commands "$@"
}
(( $+functions[_mco__subcmd__operator_commands] )) ||
_mco__subcmd__operator_commands() {
    local commands; commands=(
'start:Keep everything that is installed as the MachineConfigOperator cluster says, until SIGTERM' \
    )
    _describe -t commands 'mco operator commands' commands "$@"
}
(( $+functions[_mco__subcmd__operator__subcmd__start_commands] )) ||
_mco__subcmd__operator__subcmd__start_commands() {
    local commands; commands=()
    _describe -t commands 'mco operator start commands' commands "$@"
}
(( $+functions[_mco__subcmd__pause_commands] )) ||
_mco__subcmd__pause_commands() {
    local commands; commands=()
    _describe -t commands 'mco pause commands' commands "$@"
}
(( $+functions[_mco__subcmd__plan_commands] )) ||
_mco__subcmd__plan_commands() {
    local commands; commands=()
    _describe -t commands 'mco plan commands' commands "$@"
}
(( $+functions[_mco__subcmd__pointer_commands] )) ||
_mco__subcmd__pointer_commands() {
    local commands; commands=()
    _describe -t commands 'mco pointer commands' commands "$@"
}
(( $+functions[_mco__subcmd__render_commands] )) ||
_mco__subcmd__render_commands() {
    local commands; commands=()
    _describe -t commands 'mco render commands' commands "$@"
}
(( $+functions[_mco__subcmd__resume_commands] )) ||
_mco__subcmd__resume_commands() {
    local commands; commands=()
    _describe -t commands 'mco resume commands' commands "$@"
}
(( $+functions[_mco__subcmd__retry_commands] )) ||
_mco__subcmd__retry_commands() {
    local commands; commands=()
    _describe -t commands 'mco retry commands' commands "$@"
}
(( $+functions[_mco__subcmd__server_commands] )) ||
_mco__subcmd__server_commands() {
    local commands; commands=(
'start:Serve from the cluster until SIGTERM' \
'bootstrap:Serve from a folder until SIGTERM, for the first machines of a cluster' \
    )
    _describe -t commands 'mco server commands' commands "$@"
}
(( $+functions[_mco__subcmd__server__subcmd__bootstrap_commands] )) ||
_mco__subcmd__server__subcmd__bootstrap_commands() {
    local commands; commands=()
    _describe -t commands 'mco server bootstrap commands' commands "$@"
}
(( $+functions[_mco__subcmd__server__subcmd__start_commands] )) ||
_mco__subcmd__server__subcmd__start_commands() {
    local commands; commands=()
    _describe -t commands 'mco server start commands' commands "$@"
}
(( $+functions[_mco__subcmd__status_commands] )) ||
_mco__subcmd__status_commands() {
    local commands; commands=()
    _describe -t commands 'mco status commands' commands "$@"
}
(( $+functions[_mco__subcmd__token_commands] )) ||
_mco__subcmd__token_commands() {
    local commands; commands=(
'create:Create a token and print it; it cannot be shown again' \
'list:List tokens\: whom they are for, when they expire, whether they were used' \
'revoke:Revoke tokens, at once' \
    )
    _describe -t commands 'mco token commands' commands "$@"
}
(( $+functions[_mco__subcmd__token__subcmd__create_commands] )) ||
_mco__subcmd__token__subcmd__create_commands() {
    local commands; commands=()
    _describe -t commands 'mco token create commands' commands "$@"
}
(( $+functions[_mco__subcmd__token__subcmd__list_commands] )) ||
_mco__subcmd__token__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'mco token list commands' commands "$@"
}
(( $+functions[_mco__subcmd__token__subcmd__revoke_commands] )) ||
_mco__subcmd__token__subcmd__revoke_commands() {
    local commands; commands=()
    _describe -t commands 'mco token revoke commands' commands "$@"
}
(( $+functions[_mco__subcmd__undo_commands] )) ||
_mco__subcmd__undo_commands() {
    local commands; commands=()
    _describe -t commands 'mco undo commands' commands "$@"
}
(( $+functions[_mco__subcmd__uninstall_commands] )) ||
_mco__subcmd__uninstall_commands() {
    local commands; commands=()
    _describe -t commands 'mco uninstall commands' commands "$@"
}

if [ "$funcstack[1]" = "_mco" ]; then
    _mco "$@"
else
    compdef _mco mco
fi
