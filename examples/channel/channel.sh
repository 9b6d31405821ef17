#!/usr/bin/env bash
# A channel over the gateway, with curl and jq. Each line of input stands for a message that a chat platform hands over:
# session, the platform's own id of the message, words. Replies are printed as they come, until Ctrl-C.
#
#   echo 's1 m-1 Where is order A1001?' | examples/channel/channel.sh
#
# From the environment: GATEWAY, TOKEN (if the gateway wants one), AGENT, CHANNEL, STATE, a folder that remembers what
# has been delivered, and STREAM=1 to show texts while they are made.
set -euo pipefail

gateway=${GATEWAY:-http://127.0.0.1:8080} agent=${AGENT:-support} channel=${CHANNEL:-shell}
state=${STATE:-$HOME/.turnwheel-channel-$channel} stream=${STREAM:-}
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
    finish "$1" || jq -r '"\(.session_id) [\(.kind)] \(.text)"' <<<"$1"
    echo "$reply_id" >>"$state/.delivered"
}

# The text that grows, one for each session's follow: its stream, the next piece of it, its turn, its words.
growing='' next=0 turn='' words=''

# grow CHUNK: appends the next piece, or begins a text, also one that takes the place of what grows (`supersedes`). All other
# pieces are repeats, or their text's beginning was missed: the whole text follows.
grow() {
    local id seq of text supersedes anew=''
    # Each on a line of its own, as JSON: the text may have several.
    { read -r id && read -r seq && read -r of && read -r supersedes && read -r text; } < <(jq -c --arg channel "$channel" \
        'select(.channel == $channel) | .stream_id, .seq, .turn_id, .supersedes, .text' <<<"$1") || return 0
    text=$(jq -r '. + "."' <<<"$text") && text=${text%.}
    if [ "$id" = "$growing" ] && [ "$seq" = "$next" ]; then
        printf '%s' "$text"
        next=$((next + 1)) words+=$text
    elif [ "$seq" = 0 ] && { [ -z "$growing" ] || [ "$of" != "$turn" ] || [ "$supersedes" = "$growing" ]; }; then
        [ "$supersedes" = null ] || anew='(begins anew) '
        printf '\n%s [chunk] %s%s' "$(jq -r .session_id <<<"$1")" "$anew" "$text"
        growing=$id next=1 turn=$of words=$text
    fi
}

# finish REPLY: ends the line of the text that grows. True if the reply is that text: then only what is missing is shown.
finish() {
    [ -n "$growing" ] || return 1
    local id=$growing begun=$words text
    growing='' words=''
    text=$(jq -r '.text | ltrimstr("\n")' <<<"$1")
    if [ "$(jq -c .stream_id <<<"$1")" = "$id" ] && [ "${text#"$begun"}" != "$text" ]; then
        printf '%s\n' "${text#"$begun"}"
    else
        printf ' (does not count)\n'
        return 1
    fi
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
                case $event$stream$data in
                reply1*'"kind":"chunk"'*) grow "$data" ;;
                reply*) deliver "$data" ;;
                esac
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
