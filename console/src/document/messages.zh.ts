import type { Translation } from '$/i18n'
import type en from './messages.en'

export default {
  download: '下载',
  'diff.label': '逐行差异',
  'diff.fold': '{count} 行相同',
  'diff.none': '没有差异。',
  'diff.cut': '差异在 64 KiB 处截断。',
} satisfies Translation<typeof en>
