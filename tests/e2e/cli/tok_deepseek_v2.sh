# SPDX-License-Identifier: Apache-2.0
printf 'It'\''s 2024: 東京 and <｜User｜>naïve <think>x</think> <|im_start|>\n\n  end' |
    $SLUICE tokenize -m $TINY/deepseek_v2 --special
printf 'It'\''s 2024: 東京 and <｜User｜>naïve <think>x</think> <|im_start|>\n\n  end' |
    $SLUICE tokenize -m $TINY/deepseek_v2 --special --bos
printf 'It'\''s 2024: 東京 and <｜User｜>naïve <think>x</think> <|im_start|>\n\n  end' |
    $SLUICE tokenize -m $TINY/deepseek_v2.gguf --special
printf 'It'\''s 2024: 東京 and <｜User｜>naïve <think>x</think> <|im_start|>\n\n  end' |
    $SLUICE tokenize -m $TINY/deepseek_v2.gguf --special --bos
echo '[43, 86, 9, 85, 223, 20, 18, 20, 22, 28, 223, 165, 254, 112, 299, 280, 223, 308, 273, 130,
       110, 294, 223, 310, 90, 311, 223, 30, 94, 75, 79, 65, 274, 67, 84, 86, 94, 32, 201, 201,
       223, 223, 71, 80, 70]' | $SLUICE tokenize -m $TINY/deepseek_v2 --decode --special
