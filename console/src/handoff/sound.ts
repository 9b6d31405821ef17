// A short sound, made by the browser: two tones. It can be muted, and one of several tabs plays it.

const KEY = 'turnwheel.sound'
let context: AudioContext | null = null

export const isMuted = (): boolean => localStorage.getItem(KEY) === 'off'

export function setMuted(muted: boolean): void {
  localStorage.setItem(KEY, muted ? 'off' : 'on')
}

/** Browsers play no sound before the user has done something on the page. */
function unlock(): void {
  context ??= new AudioContext()
  if (context.state === 'suspended') void context.resume()
}

export function listen(): () => void {
  addEventListener('pointerdown', unlock)
  addEventListener('keydown', unlock)
  return () => {
    removeEventListener('pointerdown', unlock)
    removeEventListener('keydown', unlock)
  }
}

export function ring(): void {
  if (isMuted() || context?.state !== 'running') return
  // The first tab that gets the lock plays; it holds the lock for as long as others may hear of the same event.
  if (!navigator.locks) return play(context)
  const audio = context
  void navigator.locks.request(KEY, { ifAvailable: true }, async (lock) => {
    if (!lock) return
    play(audio)
    await new Promise((done) => setTimeout(done, 1500))
  })
}

function play(audio: AudioContext): void {
  for (const [index, pitch] of [660, 880].entries()) {
    const at = audio.currentTime + index * 0.14
    const tone = new OscillatorNode(audio, { frequency: pitch })
    const volume = new GainNode(audio, { gain: 0 })
    volume.gain.setValueAtTime(0, at)
    volume.gain.linearRampToValueAtTime(0.12, at + 0.02)
    volume.gain.exponentialRampToValueAtTime(0.001, at + 0.24)
    tone.connect(volume).connect(audio.destination)
    tone.start(at)
    tone.stop(at + 0.26)
  }
}
