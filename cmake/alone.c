/* The program around the objects of one library: that it links is the test. */
int main(void)
{
    return 0;
}
