# A page in five scripts, as a person writes it on a machine with Microsoft's fonts: report.docx.
import sys
import docx
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.shared import Pt

page = docx.Document()
for font, text in [
    ("Calibri", "Calibri: The quick brown fox jumps over the lazy dog 0123456789"),
    ("Cambria", "Cambria: The quick brown fox jumps over the lazy dog 0123456789"),
    ("Arial", "Arial: Съешь ещё этих мягких французских булок"),
    ("Times New Roman", "Times: Ξεσκεπάζω την ψυχοφθόρα βδελυγμία"),
    ("SimSun", "天地玄黄宇宙洪荒 いろはにほへと 다람쥐 헌 쳇바퀴"),
    ("Arial", "نص حكيم له سر قاطع وذو شأن عظيم"),
    ("Mangal", "ऋषियों को सताने वाले दुष्ट राक्षसों"),
    ("Segoe UI Emoji", "😀 🚀 🎉 ❤️ 🌍"),
]:
    run = page.add_paragraph().add_run(text)
    run.font.name, run.font.size = font, Pt(20)
    for script in ("w:eastAsia", "w:cs"):
        run._element.rPr.rFonts.set(qn(script), font)
    size = OxmlElement("w:szCs")
    size.set(qn("w:val"), "40")
    run._element.rPr.append(size)
page.save(sys.argv[1])
