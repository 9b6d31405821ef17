// Texts of documents: agent files, workflow files, drafts.
export default {
  download: 'Download',
  'diff.label': 'Difference, line by line',
  'diff.fold': { one: '{count} equal line', other: '{count} equal lines' },
  'diff.none': 'No difference.',
  'diff.cut': 'The difference is cut after 64 KiB.',
} as const
