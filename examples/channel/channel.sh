#!/usr/bin/env bash
# A channel over the gateway, with curl and jq. Each line of input stands for a message that a chat platform hands over:
# session, the platform's own id of the message, words. Replies are printed as they come, until Ctrl-C.
#
#   echo 's1 m-1 Where is order A1001?' | examples/channel/channel.sh
#
# From the environment: GATEWAY, TOKEN (if the gateway wants one), AGENT, CHANNEL, and STATE, a folder that remembers what
# has been delivered.
set -euo pipefail

gateway=${GATEWAY:-http://127.0.0.1:8080} agent=${AGENT:-support} channel=${CHANNEL:-shell}
state=${STATE:-$HOME/.turnwheel-channel-$channel}
auth=()
[ -z "${TOKEN:-}" ] || auth=(-H "Authorization: Bearer $TOKEN")
mkdir -p "$state"
touch "$state/.delivered"

# accept SESSION MESSAGE-ID TEXT: until the gateway has it. The id makes every repeat the same message: one turn.
accept() {
    local body answer status
    body=$(jq -n --arg session "$1" --arg job "$2" --arg text "$3" --arg agent "$agent" --arg channel "$channel" \
        '{session_id: $session, job_id: $job, text: $text, agent_id: $agent, channel: $channel}')
    while true; do
        answer=$(curl -sS --max-time 10 "${auth[@]}" -H 'Content-Type: application/json' -d "$body" \
            -w '\n%{http_code}' "$gateway/api/v1/messages") || true
        status=${answer##*$'\n'}
        case $status in
        202) return 0 ;;
        4*) echo "refused: ${answer%$'\n'*}" >&2 && return 1 ;; # no repeat mends it
        *) sleep 1 ;;                                           # away, or the queue is full: the same again
        esac
    done
}

# deliver REPLY: to the user, unless that has been done. A crash between the two lines shows it twice: a platform that
# drops repeats itself should be given the reply_id.
deliver() {
    local reply_id
    reply_id=$(jq -r --arg channel "$channel" 'select(.channel == $channel and .kind != "chunk") | .reply_id' <<<"$1")
    if [ -z "$reply_id" ] || grep -Fxq -- "$reply_id" "$state/.delivered"; then return; fi
    jq -r '"\(.session_id) [\(.kind)] \(.text)"' <<<"$1"
    echo "$reply_id" >>"$state/.delivered"
}

# follow SESSION: its events, from where the last connection broke off.
follow() {
    local path line event='' data='' id=''
    path=$(jq -rn --arg id "$1" '$id | @uri')
    while true; do
        while IFS= read -r line; do
            case $line in
            'id:'*) id=${line#*: } ;;
            'event:'*) event=${line#*: } ;;
            'data:'*) data=${line#*: } ;;
            '')
                [ "$event" != reply ] || deliver "$data"
                [ -z "$id" ] || echo "$id" >"$state/$1"
                event='' data='' id=''
                ;;
            esac
        done < <(curl -sN "${auth[@]}" -H "Last-Event-ID: $(cat "$state/$1")" "$gateway/api/v1/sessions/$path/events")
        sleep 1
    done
}

# Groups of their own, so that each goes with its curl.
set -m
leave() {
    local pid
    for pid in $(jobs -p); do kill -- "-$pid" 2>/dev/null || true; done
}
trap leave EXIT
declare -A followed=()
for file in "$state"/*; do
    [ -f "$file" ] || continue
    followed[${file##*/}]=1
    follow "${file##*/}" &
done
while read -r session message text; do
    accept "$session" "$message" "$text" || continue
    if [ -z "${followed[$session]:-}" ]; then
        followed[$session]=1
        echo 0 >"$state/$session"
        follow "$session" &
    fi
done
wait
