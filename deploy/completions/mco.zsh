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
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'*--pool=[A pool to create; may be given several times]:NAME:_default' \
'--cluster-dns-ip=[The address of the cluster'\''s DNS service \[default\: that of Service kube-system/kube-dns, else 10.96.0.10\]]:IP:_default' \
'--image=[Run controller, config server and operator as pods of this image \[default\: they run elsewhere\]]:IMAGE:_default' \
'*--proxy-protocol-from=[With --image\: a load balancer in front of the config server that speaks PROXY protocol, version 2; may be given several times; none takes them back; without it those that are there stay]:IP[/BITS]:_default' \
'--api-server-url=[The API server, as machines reach it \[default\: as the kubeconfig says, unless that is this computer'\''s own address\]]:URL:_default' \
'--api-server-ca=[The CA that the API server'\''s clients trust, PEM \[default\: the kubeconfig'\''s\]]:FILE:_files' \
'--daemon-image=[Run the node agents as pods of this image \[default\: they run as services of their hosts\]]:IMAGE:_default' \
'-o+[With --dry-run\: how to print the objects]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[With --dry-run\: how to print the objects]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'(-o --output)--output-dir=[With --dry-run\: write the objects into this folder for kubectl, the CRDs into a file of their own]:DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--require-token[With --image\: the config server gives configs only to machines with a boot token \[default for a new installation; one that is there stays as it is\]]' \
'(--require-token)--open[With --image\: the config server gives configs to everybody who reaches it, over plain HTTP (22624) too, as the reference does]' \
'--openshift-config-crds[Also install the CRDs of OpenShift'\''s config and operator kinds that are read where they exist]' \
'--dry-run[Say what would be done and do nothing]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(status)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'*--phase=[List only nodes in this phase; may be given several times]:PHASE:((done\:"In the pool'\''s config and available"
unavailable\:"In the pool'\''s config, not available"
goes\:"It is sent to the pool'\''s config now"
moving\:"At work"
failing\:"It fails to get there"
waits\:"It is to go, and cannot yet"))' \
'*--node=[List only this node; may be given several times]:NAME:_default' \
'--timeout=[With --until-updated\: end after this time, like 90s, 30m or 2h, with what is waited for]:TIME:_default' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'(--phase --node)--all[List the nodes that are done, too]' \
'-w[Keep showing changes; on a terminal the table is updated in place]' \
'--watch[Keep showing changes; on a terminal the table is updated in place]' \
'--until-updated[With --watch\: end when every pool shown is updated, or cannot be before a person has changed something]' \
'--exit-code[Exit with 3 when something is not as it should be, see below]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::pools -- Only these pools:_default' \
&& ret=0
;;
(plan)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'(--kubeconfig --context)*--from=[Read the cluster'\''s objects from this file or folder instead; may be given several times]:FILE|DIR:_files' \
'*-f+[Plan a change by these manifests\: a file, a folder, or \`-\`; may be given several times]:FILE|DIR:_files' \
'*--filename=[Plan a change by these manifests\: a file, a folder, or \`-\`; may be given several times]:FILE|DIR:_files' \
'--templates=[With -f\: the folder of the controller'\''s templates, for kinds that become MachineConfigs by them \[default\: that of the controller'\''s image, where it is\]]:DIR:_files' \
'*--pool=[Only this pool; may be given several times]:NAME:_default' \
'--refuse=[With -f\: exit with 3 when the change costs a node this or more]:REFUSE:((reload\:"Refuse what reloads a service, or worse"
restart\:"Refuse what restarts a service, or worse"
drain\:"Refuse what drains a node, or worse"
reboot\:"Refuse what reboots a node"))' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--delete[With -f\: plan that these objects are deleted, as by \`kubectl delete -f\`]' \
'--show-secrets[Show contents that may be secret too\: of files that not everybody may read, and where a line looks like one]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(pause)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::pools -- The pools:_default' \
&& ret=0
;;
(history)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'(--release)--to=[The rendered config to go back to \[default\: the one before\]; \`mco history\` lists them]:CONFIG:_default' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--release[Take the pin away\: the pool follows its MachineConfigs again]' \
'--show-secrets[Show contents that may be secret too\: of files that not everybody may read, and where a line looks like one]' \
'-y[Do not ask]' \
'--yes[Do not ask]' \
'(-y --yes)--dry-run[Say what it would do and do nothing]' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'()--contested[Only what more than one MachineConfig sets]' \
'--show-secrets[Show contents that may be secret too\: of files that not everybody may read, and where a line looks like one]' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'*-f+[A file of manifests (YAML or JSON), a folder of such files, or \`-\` for standard input; may be given several times]:FILE|DIR:_files' \
'*--filename=[A file of manifests (YAML or JSON), a folder of such files, or \`-\` for standard input; may be given several times]:FILE|DIR:_files' \
'--templates=[The folder of templates that base MachineConfigs are made from]:DIR:_files' \
'*--pool=[Only this pool; may be given several times]:NAME:_default' \
'*--diff-with=[Show what differs from the rendering of these manifests, or from rendered configs]:FILE|DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'(--diff-with)--diff[Show what differs from the live pools instead of the result]' \
'--exit-code[With a diff\: exit with 3 when there is a difference]' \
'--show-secrets[Show contents that may be secret too\: of files that not everybody may read, and where a line looks like one]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(lint)
_arguments "${_arguments_options[@]}" : \
'*-f+[A file of manifests (YAML or JSON), a folder of such files, or \`-\` for standard input; may be given several times]:FILE|DIR:_files' \
'*--filename=[A file of manifests (YAML or JSON), a folder of such files, or \`-\` for standard input; may be given several times]:FILE|DIR:_files' \
'--templates=[The folder of templates that base MachineConfigs are made from\: what goes over them is told too]:DIR:_files' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--strict[Exit with 3 for warnings too]' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(controller)
_arguments "${_arguments_options[@]}" : \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'--templates=[The folder of the templates that the base MachineConfigs are made from]:DIR:_files' \
'--metrics-listen=[Where /metrics and /healthz are served; \`off\` for nowhere]:ADDR:_default' \
'--metrics-secure-listen=[Where the same is served by HTTPS; \`off\` for nowhere. Who reads metrics there shows a bearer token, and needs the right to \`get\` the path /metrics]:ADDR:_default' \
'--metrics-cert=[The certificate for that (PEM); read again when it changes \[default\: a self-signed one, made at start\]]:FILE:_files' \
'--metrics-key=[Its key (PEM)]:FILE:_files' \
'--leader-elect=[Work only while holding the Lease, so that several may run]::BOOL:(true false)' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'--node-name=[The name of this host'\''s Node \[default\: the host name\]]:NAME:_default' \
'--root-mount=[Where the host'\''s root folder is]:DIR:_files' \
'--metrics-url=[Where /metrics is served; \`off\` for nowhere]:ADDR:_default' \
'--metrics-secure-listen=[Where the same is served by HTTPS; \`off\` for nowhere. Who reads metrics there shows a bearer token, and needs the right to \`get\` the path /metrics]:ADDR:_default' \
'--metrics-cert=[The certificate for that (PEM); read again when it changes \[default\: a self-signed one, made at start\]]:FILE:_files' \
'--metrics-key=[Its key (PEM)]:FILE:_files' \
'--kubelet-healthz-enabled=[Ask the kubelet for its health]::BOOL:(true false)' \
'--kubelet-healthz-endpoint=[Where it answers\: an http URL with an IP address]:URL:_default' \
'--once-from=[Apply this config (a MachineConfig or an Ignition config) to the host without a cluster, and end]:FILE|URL:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--skip-reboot[With --once-from\: leave the reboot that it may need to others]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(plan)
_arguments "${_arguments_options[@]}" : \
'-f+[The config\: a file, or \`-\`]:FILE:_files' \
'--filename=[The config\: a file, or \`-\`]:FILE:_files' \
'--policy=[A manifest of the MachineConfiguration whose disruption policies count \[default\: the built-in ones\]]:FILE:_files' \
'--refuse=[Exit with 3 when it costs this or more]:REFUSE:((reload\:"Refuse what reloads a service, or worse"
restart\:"Refuse what restarts a service, or worse"
drain\:"Refuse what drains a node, or worse"
reboot\:"Refuse what reboots a node"))' \
'--root-mount=[Where the host'\''s root folder is]:DIR:_files' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(recover)
_arguments "${_arguments_options[@]}" : \
'--root-mount=[Where the host'\''s root folder is]:DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(firstboot-complete-machineconfig)
_arguments "${_arguments_options[@]}" : \
'--root-mount=[Where the host'\''s root folder is]:DIR:_files' \
'--machineconfig-file=[The config that the config server left for the first boot, below the root folder]:FILE:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'--secure-port=[The HTTPS port]:PORT:_default' \
'--insecure-port=[The port for the same over plain HTTP, which shows configs to everybody on the way; 0 for none. The reference'\''s is 22624]:PORT:_default' \
'--cert=[The certificate (PEM); read again when it changes]:FILE:_files' \
'--key=[The key (PEM); read again when it changes]:FILE:_files' \
'--tls-min-version=[The oldest TLS version to speak\: VersionTLS12 or VersionTLS13]:VERSION:_default' \
'*--tls-cipher-suites=[Cipher suites to offer, by IANA, Go or OpenSSL name \[default\: all that are safe\]]:NAMES:_default' \
'--payload-version=[The release that this server belongs to]:VERSION:_default' \
'--bind-address=[The address to listen on \[default\: all\]]:IP:_default' \
'*--proxy-protocol-from=[A load balancer that speaks PROXY protocol, version 2\: machines are told apart by the address that it names. It must name one; may be given several times]:IP[/BITS]:_default' \
'--connections-per-address=[Connections at once of one address, an IPv6 /64 counting as one; 0 for no limit. Raise it where thousands of machines boot from behind one address (NAT)]:N:_default' \
'--metrics-listen=[Where /metrics is served, with /healthz and /readyz; \`off\` for nowhere]:ADDR:_default' \
'--metrics-secure-listen=[Where the same is served by HTTPS; \`off\` for nowhere. Who reads metrics there shows a bearer token, and needs the right to \`get\` the path /metrics]:ADDR:_default' \
'--metrics-cert=[The certificate for that (PEM); read again when it changes \[default\: a self-signed one, made at start\]]:FILE:_files' \
'--metrics-key=[Its key (PEM)]:FILE:_files' \
'--apiserver-url=[The API server as machines reach it; written into the kubeconfig that they are given]:URL:_default' \
'--bootstrap-token-dir=[Where the Secret with the bootstrap token is mounted]:DIR:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--http2[Offer HTTP/2 too]' \
'--require-token[Give configs only to machines that show a boot token (see \`mco token\`)]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(bootstrap)
_arguments "${_arguments_options[@]}" : \
'--secure-port=[The HTTPS port]:PORT:_default' \
'--insecure-port=[The port for the same over plain HTTP, which shows configs to everybody on the way; 0 for none. The reference'\''s is 22624]:PORT:_default' \
'--cert=[The certificate (PEM); read again when it changes]:FILE:_files' \
'--key=[The key (PEM); read again when it changes]:FILE:_files' \
'--tls-min-version=[The oldest TLS version to speak\: VersionTLS12 or VersionTLS13]:VERSION:_default' \
'*--tls-cipher-suites=[Cipher suites to offer, by IANA, Go or OpenSSL name \[default\: all that are safe\]]:NAMES:_default' \
'--payload-version=[The release that this server belongs to]:VERSION:_default' \
'--bind-address=[The address to listen on \[default\: all\]]:IP:_default' \
'*--proxy-protocol-from=[A load balancer that speaks PROXY protocol, version 2\: machines are told apart by the address that it names. It must name one; may be given several times]:IP[/BITS]:_default' \
'--connections-per-address=[Connections at once of one address, an IPv6 /64 counting as one; 0 for no limit. Raise it where thousands of machines boot from behind one address (NAT)]:N:_default' \
'--metrics-listen=[Where /metrics is served, with /healthz and /readyz; \`off\` for nowhere]:ADDR:_default' \
'--metrics-secure-listen=[Where the same is served by HTTPS; \`off\` for nowhere. Who reads metrics there shows a bearer token, and needs the right to \`get\` the path /metrics]:ADDR:_default' \
'--metrics-cert=[The certificate for that (PEM); read again when it changes \[default\: a self-signed one, made at start\]]:FILE:_files' \
'--metrics-key=[Its key (PEM)]:FILE:_files' \
'--server-basedir=[The folder with machine-pools/ and machine-configs/]:DIR:_files' \
'--bootstrap-kubeconfig=[The kubeconfig that machines are given]:FILE:_files' \
'*--bootstrap-certs=[A registry'\''s CA, \`REGISTRY=FILE\` with the file below the base folder; may be given several times]:REGISTRY=FILE:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--require-token[Each pool'\''s user data holds a boot token\: for a config server with --require-token]' \
'--once[Look once, write what is missing or stale, say what, and end]' \
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
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'--ttl=[How long it is good, like 90m, 24h or 7d \[default\: until it is revoked\]]:TIME:_default' \
'--grace=[With --single-use\: how long that machine may ask again, when its transfer broke]:TIME:_default' \
'--node=[The machine that it is for, which a custom pool then expects; told in the server'\''s log and in \`mco token list\`]:NAME:_default' \
'*--address=[Where the machine must ask from\: an address or a network; may be given several times]:IP[/BITS]:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--single-use[For the boot of one machine]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
':pool -- The pool whose config it gives:_default' \
&& ret=0
;;
(list)
_arguments "${_arguments_options[@]}" : \
'--kubeconfig=[The kubeconfig to use \[default\: as kubectl finds it, else the pod'\''s own\]]:FILE:_files' \
'--context=[The context of the kubeconfig to use \[default\: its current-context\]]:NAME:_default' \
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'-o+[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--output=[How to print]:OUTPUT:((text\:"For people"
json\:"For programs"
yaml\:"For programs and people"))' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--spent[All that have expired or were used]' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
'*::ids -- The tokens'\'' IDs\: what stands before the dot:_default' \
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
'--kubeconfig-list=[What the environment says in place of --kubeconfig\: files, of which the first that says something counts]:FILES:_default' \
'--token=[The boot token to send \[default\: the pool'\''s own, where \`mco operator\` keeps one\]]:TOKEN:_default' \
'--ignition-version=[The version to write it in\: what the machine'\''s Ignition reads]:VERSION:_default' \
'--host=[The server, as machines reach it \[default\: as the ControllerConfig says\]]:HOST:_default' \
'--port=[The server'\''s port]:PORT:_default' \
'--ca=[Whom to trust (PEM) \[default\: as the ConfigMap machine-config-server-ca says\]]:FILE:_files' \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
'--log-json[One JSON object per log line]' \
'-h[Print help]' \
'--help[Print help]' \
':pool -- The pool that the machine boots into:_default' \
&& ret=0
;;
(completion)
_arguments "${_arguments_options[@]}" : \
'--log=[What to log\: a level, or filters like \`info,controller=debug\`]:FILTER:_default' \
'--no-color=[Any text but an empty one\: no colours (<https\://no-color.org>). The help obeys it by itself]:ANY:_default' \
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
'install:Put namespace, CRDs, ControllerConfig and pools into a cluster' \
'status:Show pools and nodes\: who waits for what, and why' \
'plan:Say what the controller does now, or what a change would do to the nodes; writes nothing' \
'pause:Stop giving nodes of a pool new configs' \
'resume:Let a paused pool go on' \
'history:Show the rendered configs of a pool\: since when, and who changed what' \
'undo:Take a pool back to a config that it had, until its MachineConfigs are corrected' \
'retry:Have nodes try again at once what they failed at' \
'explain:Say which MachineConfig set a file, unit or argument of a pool, and which lost' \
'render:Render manifests without a cluster, or show what they would change' \
'lint:Check manifests\: every rule, with the place and the remedy' \
'controller:The controller\: renders configs, rolls them out, drains nodes' \
'daemon:The node agent\: applies configs to this host' \
'server:The config server\: hands booting machines their Ignition config' \
'operator:The operator\: keeps the config server'\''s certificates and the machines'\'' user data' \
'token:Boot tokens\: who may fetch a pool'\''s config' \
'pointer:Print the config that a machine is provisioned with\: it sends it to the config server' \
'completion:Print a shell completion script' \
    )
    _describe -t commands 'mco commands' commands "$@"
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
'bootstrap:Render once, from manifests in a folder to files in another' \
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
'plan:Say what a config would do on this host\: every step, what it costs, or why it cannot be applied' \
'recover:Finish or undo what a crash interrupted; needs no API server' \
'firstboot-complete-machineconfig:Complete a machine'\''s first boot\: what Ignition cannot do, before the kubelet starts' \
    )
    _describe -t commands 'mco daemon commands' commands "$@"
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
'start:Keep the config server'\''s certificates and the machines'\'' user data, until SIGTERM' \
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
'create:Make a token and print it\: the only time that it can be seen' \
'list:Show tokens\: for whom, until when, used or not' \
'revoke:Take tokens back, at once' \
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

if [ "$funcstack[1]" = "_mco" ]; then
    _mco "$@"
else
    compdef _mco mco
fi
